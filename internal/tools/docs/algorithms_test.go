package docs

import (
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestAlgorithmsAreDescribed checks that docs/algorithms.md has a section on every
// registered algorithm, with its picture if it has a rate.
func TestAlgorithmsAreDescribed(t *testing.T) {
	t.Parallel()
	text := files(t)["docs/algorithms.md"]
	for _, k := range algorithm.Kinds {
		_, section, ok := strings.Cut(text, "\n## "+limits.Constructor(k)+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !ok || !k.Slots && !strings.Contains(section, "](pictures/"+k.Name+".svg)") {
			t.Errorf("docs/algorithms.md has no section %q with the picture %s.svg", "## "+limits.Constructor(k), k.Name)
		}
	}
}
