package look_test

import (
	"maps"
	"math"
	"strconv"
	"testing"

	"github.com/redislimit/redislimit/internal/demo/look"
)

// TestContrast checks that everything written or drawn in a color can be read. WCAG 2.2 requires a contrast of 4.5 for
// text and of 3 for lines.
func TestContrast(t *testing.T) {
	light, differs := look.Values()
	dark := maps.Clone(light)
	maps.Copy(dark, differs)
	if len(differs) != len(light)-1 {
		t.Errorf("got %d values for dark, want all %d except the typeface", len(differs), len(light))
	}
	for scheme, colours := range map[string]map[string]string{"light": light, "dark": dark} {
		for _, ground := range []string{"card", "page", "away"} {
			for name, want := range map[string]float64{"ink": 4.5, "muted": 4.5, "served": 4.5, "denied": 4.5, "held": 4.5, "broken": 4.5, "edge": 3} {
				if ground == "away" {
					want = 3 // only marks and lines are drawn on it
				}
				if name == "edge" && ground != "card" {
					continue
				}
				if got := contrast(t, colours[name], colours[ground]); got < want {
					t.Errorf("%s: --%s on --%s: got a contrast of %.2f, want at least %v", scheme, name, ground, got, want)
				}
			}
		}
	}
}

// contrast returns the contrast of two colors such as #1f66c1.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	if len(colour) != 7 {
		t.Fatalf("got color %q, want #rrggbb", colour)
	}
	sum := 0.0
	for i, share := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += share * v
	}
	return sum
}
