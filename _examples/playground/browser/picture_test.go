package browser

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// outDir is the output of CI, and docsDir contains the documents.
var (
	outDir  = filepath.Join("..", "..", "..", ".ci", "out")
	docsDir = filepath.Join("..", "..", "..", "docs")
)

// prefer emulates a preference of the user, such as a dark color scheme.
func (p *tab) prefer(feature, value string) {
	p.t.Helper()
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: feature, Value: value}}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, params); err != nil {
		p.t.Fatal(err)
	}
}

// keep writes a screenshot of the page to the output of CI.
func (p *tab) keep(name string) []byte {
	p.t.Helper()
	shot := get(p, chromedp.CaptureScreenshot())
	write(p.t, filepath.Join(outDir, name), shot)
	return shot
}

// write writes a file, and makes its folder.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// slim returns a screenshot as a PNG with a palette. The page has few colors, and the README should load fast.
func slim(t *testing.T, shot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	// The most frequent colors stay exact. The other colors, mostly of the smooth edges of letters, become the nearest of them.
	count := map[color.RGBA]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			r, g, b, _ := full.At(x, y).RGBA()
			count[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}]++
		}
	}
	var palette color.Palette
	for len(palette) < 256 && len(count) > 0 {
		var best color.RGBA
		for c, n := range count {
			if n > count[best] || n == count[best] && less(c, best) {
				best = c
			}
		}
		palette = append(palette, best)
		delete(count, best)
	}
	small := image.NewPaletted(full.Bounds(), palette)
	draw.Draw(small, small.Bounds(), full, image.Point{}, draw.Src)
	var buf bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, small); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// less orders colors, so that the palette is always the same.
func less(a, b color.RGBA) bool {
	return a.R < b.R || a.R == b.R && (a.G < b.G || a.G == b.G && a.B < b.B)
}
