// Pictures draws the pictures of the documents from real runs. It sends scripted traffic to limiters of package
// core, over a Redis server whose clock it controls, and draws the Results. So every run produces the same bytes.
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

// run writes every picture into a folder.
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

// drawAll returns the SVG text of every picture by its file name.
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
