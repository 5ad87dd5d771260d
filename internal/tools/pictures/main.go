// Pictures draws the pictures of the documents from real runs. It sends scripted
// traffic to the limiters of package core, over a Redis whose clock it moves, and
// draws the Results. So every run gives the same bytes.
//
//	go run ./internal/tools/pictures # writes docs/pictures
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(context.Background(), filepath.Join("docs", "pictures")); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// run writes every picture to a folder.
func run(ctx context.Context, folder string) error {
	w, err := open()
	if err != nil {
		return err
	}
	defer w.close()
	files, err := drawAll(ctx, w)
	if err != nil {
		return err
	}
	for name, svg := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// drawAll returns every picture, by the name of its file.
func drawAll(ctx context.Context, w *environment) (map[string]string, error) {
	files := map[string]string{}
	all, err := pictures()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
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
