package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestPictures holds the pictures in the documents to the code that they show.
func TestPictures(t *testing.T) {
	w, err := open("")
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	holdToDocuments(t, w)
}

// TestRedis has a real Redis say the same.
func TestRedis(t *testing.T) {
	client := redistest.Server(t).Client(t)
	holdToDocuments(t, overRedis(client))
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("left behind: %v, %v", keys, err)
	}
}

func holdToDocuments(t *testing.T, w *world) {
	t.Helper()
	files, err := drawAll(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("..", "..", "..", "docs", "pictures")
	for name, svg := range files {
		wellFormed(t, name, svg)
		if had, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(had) != svg {
			t.Errorf("%s is not what the code draws (%v): go run ./internal/tools/pictures, look at it, commit it", name, err)
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if _, ok := files[entry.Name()]; !ok {
			t.Errorf("%s: nothing draws it: remove it", entry.Name())
		}
	}
}

// wellFormed reads svg as a browser does that shows an image: it is XML, and it
// fetches nothing.
func wellFormed(t *testing.T, name, svg string) {
	t.Helper()
	found := map[string]bool{}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if start, ok := token.(xml.StartElement); ok {
			found[start.Name.Local] = true
		}
	}
	if !found["title"] || !found["desc"] || found["image"] || found["script"] ||
		strings.Contains(svg, "url(") || strings.Contains(svg, "NaN") {
		t.Errorf("%s: elements %v", name, found)
	}
}
