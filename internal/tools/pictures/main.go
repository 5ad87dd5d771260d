// Pictures draws the pictures of the documents from real runs. It sends scripted
// traffic to the limiters of package core, over a Redis whose clock it moves, and
// draws the Results. So every run gives the same bytes.
//
//	go run ./internal/tools/pictures                                # writes docs/pictures
//	go run ./internal/tools/pictures -redis redis://localhost:6379  # over a real Redis
//
// Over a real Redis only the clock is simulated: Redis itself runs the scripts. The
// keys begin with "rl-pictures:", and are removed at the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("pictures", flag.ContinueOnError)
	out := flags.String("out", filepath.Join("docs", "pictures"), "the folder to write to")
	url := flags.String("redis", "", "the URL of a Redis; by default one in this process")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	w, err := open(*url)
	if err != nil {
		return err
	}
	defer w.close()
	files, err := drawAll(ctx, w)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	for name, svg := range files {
		if err := os.WriteFile(filepath.Join(*out, name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// drawAll returns every picture, by the name of its file.
func drawAll(ctx context.Context, w *environment) (map[string]string, error) {
	files := map[string]string{}
	for _, p := range pictures() {
		svg, err := p.draw(ctx, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.file, err)
		}
		files[p.file] = svg
	}
	svg, err := drawOverview(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("overview: %w", err)
	}
	files["overview.svg"] = svg
	if svg, err = drawLease(ctx, w); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	files["lease.svg"] = svg
	return files, nil
}
