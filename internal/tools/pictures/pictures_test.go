package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// TestPictures checks that docs/pictures has exactly the pictures that the code draws.
func TestPictures(t *testing.T) {
	w, err := open()
	if errors.Is(err, embedded.ErrBits) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	files, err := drawAll(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("..", "..", "..", "docs", "pictures")
	for name, svg := range files {
		wellFormed(t, name, svg)
		if had, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(had) != svg {
			t.Errorf("%s: got another picture than the code draws (%v): run go run ./internal/tools/pictures, check the picture, commit it", name, err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if _, ok := files[entry.Name()]; !ok {
			t.Errorf("%s: got a file that the code does not draw: remove it", entry.Name())
		}
	}
}

// wellFormed checks that svg is valid XML with a title and a description, and that it loads nothing.
func wellFormed(t *testing.T, name, svg string) {
	t.Helper()
	found := map[string]bool{}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: got error %v, want valid XML", name, err)
		}
		if start, ok := token.(xml.StartElement); ok {
			found[start.Name.Local] = true
		}
	}
	if !found["title"] || !found["desc"] || found["image"] || found["script"] ||
		strings.Contains(svg, "url(") || strings.Contains(svg, "NaN") {
		t.Errorf("%s: got the elements %v, want title and desc, no image and no script, and a text without url( and NaN", name, found)
	}
}
