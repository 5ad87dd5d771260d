// Mutants breaks the library on purpose, one rule at a time, and reports which test notices. If no test catches a mutant,
// no test checks its rule: write the test, or explain in the list why the mutant changes nothing.
//
//	go run ./internal/tools/mutants            # all of them; takes 100 minutes on two cores
//	go run ./internal/tools/mutants hold/ key  # those whose names contain one of the words
//	go run ./internal/tools/mutants -from NAME # continues a run from this mutant
//	go run ./internal/tools/mutants -list      # only reports which mutants still apply
//	go run ./internal/tools/mutants -update    # updates the lists after names in the code have changed
//
// Nothing in the checkout changes, because each mutant is compiled from an overlay. But Go's build cache grows by 100 MB
// for each mutant: for a long run, set GOCACHE to a folder that you delete afterwards.
//
// The mutants are listed in the .txt files of this folder:
//
//	in internal/algorithm/lua                    the file to change, or its folder; valid until the next such line
//	dir otel                                     the module whose tests run, if not the main one; valid until the next such line
//	test ./internal/suite/conformance -run Redis the arguments of go test; valid until the next such line
//	== hold/forgotten when it expires            the mutant's name
//	-if expired then                             the text to replace, which occurs exactly once in files other than tests,
//	+if false then                               and its replacement; both may have several lines, or be part of a line
//	same It is never expired here.               why no test can notice the mutant, if that is the case
//
// A mutant survives changes of names. If its text does not occur literally, it is found by its operators, numbers,
// keywords and the order of its names, in the same file or folder or in one above it. The names in the replacement then
// change in the same way. -list shows such mutants, and -update brings the lists up to date; check the difference
// afterwards. A mutant that is not found, or does not compile, is reported and does not fail the run: rewrite it for the
// rule that it broke.
package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A mutant is one change of the library that breaks a rule.
type mutant struct{ name, in, old, new, dir, test, same string }

// An outcome is the test that noticed a mutant, if there is one, or the reason why the mutant could not be tried.
type outcome struct {
	result string
	err    error
}

//go:embed *.txt
var lists embed.FS

// parse returns the mutants of one list.
func parse(text string) ([]mutant, error) {
	var all []mutant
	var in, test string
	dir := "."
	for number, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		if n := len(all); n > 0 && all[n-1].old == "" && line != "" && line[0] != '-' {
			return nil, fmt.Errorf("line %d: %q stands between the name of a mutant and its text", number+1, line)
		}
		switch {
		case line == "" || line[0] == '#':
			continue
		case word == "in":
			in = rest
			continue
		case word == "dir":
			dir = rest
			continue
		case word == "test":
			test = rest
			continue
		case word == "==":
			all = append(all, mutant{name: rest, in: in, dir: dir, test: test})
			continue
		case len(all) == 0:
			return nil, fmt.Errorf("line %d: no mutant yet: %q", number+1, line)
		}
		switch m := &all[len(all)-1]; {
		case line[0] == '-':
			m.old = join(m.old, line[1:])
		case line[0] == '+':
			m.new = join(m.new, line[1:])
		case word == "same":
			m.same = rest
		default:
			return nil, fmt.Errorf("line %d: what is %q?", number+1, line)
		}
	}
	return all, nil
}

func join(before, line string) string {
	if before == "" {
		return line
	}
	return before + "\n" + line
}

// read returns the mutants of all lists.
func read() ([]mutant, error) {
	files, err := lists.ReadDir(".")
	var all []mutant
	for _, file := range files {
		text, readErr := lists.ReadFile(file.Name())
		found, parseErr := parse(string(text))
		if parseErr != nil {
			parseErr = fmt.Errorf("%s: %w", file.Name(), parseErr)
		}
		all, err = append(all, found...), errors.Join(err, readErr, parseErr)
	}
	return all, err
}

func main() {
	timeout := flag.Duration("timeout", 4*time.Minute, "of the tests of one mutant")
	from := flag.String("from", "", "the `name` of the mutant to begin with")
	list := flag.Bool("list", false, "only say which mutants still apply to the code")
	update := flag.Bool("update", false, "write the names that the code has now into the lists")
	flag.Parse()
	all, err := read()
	if err == nil && *update {
		if err = updateLists(all); err == nil {
			return
		}
	}
	begin := slices.IndexFunc(all, func(m mutant) bool { return *from == "" || m.name == *from })
	if err == nil && begin < 0 {
		err = fmt.Errorf("-from %q: no mutant has this name", *from)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	all = slices.DeleteFunc(all[begin:], func(m mutant) bool { return !wanted(m.name, flag.Args()) })
	results := make([]chan outcome, len(all))
	for i := range results {
		results[i] = make(chan outcome, 1)
	}
	go func() {
		places := make(chan struct{}, runtime.NumCPU()+1) // one more than the CPUs, because tests also wait
		for i, m := range all {
			places <- struct{}{}
			go func() {
				result, err := m.result(*list, *timeout)
				results[i] <- outcome{result, err}
				<-places
			}()
		}
	}()
	failed := false
	caught, survived, equivalent, stale := 0, 0, 0, 0
	for i, m := range all {
		got := <-results[i]
		result, err := got.result, got.err
		switch {
		case errors.Is(err, errStale):
			result = "DOES NOT APPLY: " + err.Error()
			stale++
		case err != nil:
			result, failed = "CANNOT BE TRIED: "+err.Error(), true
		case result == "" && m.same != "":
			result = "changes nothing: " + m.same
			equivalent++
		case result == "":
			result, failed = "SURVIVED", true
			survived++
		default:
			caught++
		}
		fmt.Printf("%-60s %s\n", m.name, result)
	}
	if *list {
		fmt.Printf("%d mutants apply, %d do not\n", caught, stale)
	} else {
		fmt.Printf("%d caught, %d survived, %d change nothing, %d do not apply\n", caught, survived, equivalent, stale)
	}
	if failed {
		os.Exit(1)
	}
}

func wanted(name string, words []string) bool {
	for _, w := range words {
		if strings.Contains(name, w) {
			return true
		}
	}
	return len(words) == 0
}

// result returns the test that notices m, or "". If list is true, it only looks for the place of m in the code and for its
// tests.
func (m mutant) result(list bool, timeout time.Duration) (string, error) {
	if !list {
		return m.run(timeout)
	}
	c, err := m.apply()
	if err == nil {
		err = m.testable()
	}
	if c.old != m.old {
		return "there, with other names in " + c.path + ": " + strings.Join(strings.Fields(c.old), " "), err
	}
	return "there", err
}

// testable returns an error if a package of m's tests does not exist.
func (m mutant) testable() error {
	packages, _, _ := strings.Cut(m.test, " -run ")
	for pkg := range strings.FieldsSeq(packages) {
		if _, err := os.Stat(filepath.Join(m.dir, strings.TrimSuffix(pkg, "..."))); err != nil {
			return fmt.Errorf("%w: its tests: %w", errStale, err)
		}
	}
	return nil
}

// ran matches what go test prints about a package in which at least one test ran.
var ran = regexp.MustCompile(`(?m)^ok .*s$`)

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// run applies m, and returns the test that notices it, or "".
func (m mutant) run(timeout time.Duration) (string, error) {
	c, err := m.apply()
	if err == nil {
		err = m.testable()
	}
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	absolute, err := filepath.Abs(c.path)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, filepath.Base(c.path)), filepath.Join(dir, "overlay.json")
	replace, _ := json.Marshal(map[string]map[string]string{"Replace": {absolute: changed}})
	if err := errors.Join(os.WriteFile(changed, c.text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	packages, run, _ := strings.Cut(m.test, " -run ")
	var all []byte
	for pkg := range strings.FieldsSeq(packages) { // one after the other, so that a package is built only if the earlier ones notice nothing
		out, caught, err := test(timeout, "test", "-C", m.dir, "-vet=off", "-count=1", "-failfast",
			"-timeout", timeout.String(), "-overlay", overlay, pkg, "-run", run)
		if caught != "" || err != nil {
			return caught, err
		}
		all = append(all, out...)
	}
	if !ran.Match(all) {
		return "", fmt.Errorf("no test ran: %s", all)
	}
	return "", nil
}

// test runs go test, and returns the name of the test that fails, or "". The tests may run for timeout. The build may take
// ten minutes more, because a build that takes too long says nothing about the mutant.
func test(timeout time.Duration, args ...string) (out []byte, caught string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+10*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "go", append(args, "-exec", "env GOGC=100")...)
	command.Env = append(os.Environ(), "GOGC=off") // the garbage collector would be a quarter of the compiler's work
	out, err = command.CombinedOutput()
	switch found := failure.FindAllSubmatch(out, -1); {
	case err == nil:
		return out, "", nil
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return out, "", fmt.Errorf("%w: it does not compile: %s", errStale, out)
	case len(found) > 0:
		return out, "caught by " + string(found[len(found)-1][1]), nil
	case bytes.Contains(out, []byte("panic: test timed out")):
		return out, "caught by a test that does not end", nil
	case ctx.Err() != nil:
		return out, "", errors.New("go test was stopped, because the build took too long")
	default:
		return out, "caught by a panic", nil
	}
}
