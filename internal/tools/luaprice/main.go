// Luaprice counts the instructions that Redis executes for the Lua scripts of this library. It runs redis-server
// under callgrind, which counts the same instructions in every run, no matter how busy the machine is. The numbers
// repeat to about 0.1 %.
//
//	go run ./internal/tools/luaprice                     # the scripts of this checkout
//	go run ./internal/tools/luaprice -against 5199f03    # also the scripts of a commit, and the difference
//	go run ./internal/tools/luaprice -against ../other   # also the scripts of another checkout
//	go run ./internal/tools/luaprice -only 'token_bucket|three'
//
// The cases of this checkout are compiled with the packages of the other one. If a name in internal/algorithm has
// changed since then, this fails: put the program, as it was before the change, into the other checkout, and run it
// there with -figures.
//
// It needs valgrind (with vgdb) and redis-server in PATH. Each number is the instructions of one decision: parsing
// the command, executing the script, and writing the reply. A pair of calls, such as "reserve and settle", counts as
// one decision.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
)

const here = "internal/tools/luaprice"

func main() {
	against := flag.String("against", "", "the commit or the `checkout` to compare with")
	only := flag.String("only", "", "measure only the cases that match the `pattern`")
	figures := flag.Bool("figures", false, "print the figures of this checkout as JSON")
	flag.Parse()
	if err := run(*against, *only, *figures); err != nil {
		fmt.Fprintln(os.Stderr, "luaprice:", err)
		os.Exit(1)
	}
}

func run(against, only string, figures bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	var before []figure
	if against != "" {
		if before, err = other(against, only); err != nil {
			return fmt.Errorf("measuring %s: %w", against, err)
		}
	}
	now, err := measure(pattern)
	if err != nil {
		return err
	}
	if figures {
		return json.NewEncoder(os.Stdout).Encode(now)
	}
	printTable(now, before)
	return nil
}

func printTable(now, before []figure) {
	base := make(map[string]int64, len(before))
	for _, f := range before {
		base[f.Name] = f.Instructions
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer func() { _ = out.Flush() }()
	for _, f := range now {
		_, _ = fmt.Fprintf(out, "%s\t%d", f.Name, f.Instructions)
		if was := base[f.Name]; was > 0 {
			_, _ = fmt.Fprintf(out, "\t%d\t%+.1f %%", was, 100*(float64(f.Instructions)/float64(was)-1))
		}
		_, _ = fmt.Fprintln(out)
	}
}

// other measures the scripts of another checkout or of a commit, with the cases of this checkout: it compiles the
// files of this program as if they were in the other one.
func other(which, only string) ([]figure, error) {
	dir := which
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		temp, err := os.MkdirTemp("", "luaprice")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(temp) }()
		archive := exec.Command("sh", "-c", `git archive "$0" | tar -x -C "$1"`, which, temp)
		if out, err := archive.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		dir = temp
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(here + "/*.go")
	if err != nil || files == nil {
		return nil, fmt.Errorf("%s is not a folder of the working directory", here)
	}
	replace := make(map[string]string)
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		replace[filepath.Join(dir, file)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	list, err := os.CreateTemp("", "luaprice*.json")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(list.Name()) }()
	if _, err = list.Write(text); err != nil {
		return nil, err
	}
	command := exec.Command("go", "run", "-overlay", list.Name(), "./"+here, "-figures", "-only", only)
	command.Dir, command.Stderr = dir, os.Stderr
	printed, err := command.Output()
	if err != nil {
		return nil, err
	}
	var all []figure
	err = json.NewDecoder(strings.NewReader(string(printed))).Decode(&all)
	return all, err
}
