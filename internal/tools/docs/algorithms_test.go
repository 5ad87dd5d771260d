package docs

import (
	"os"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestAlgorithmsAreDescribed checks that docs/algorithms.md has a section for every registered algorithm, with its
// picture if the algorithm has a rate.
func TestAlgorithmsAreDescribed(t *testing.T) {
	t.Parallel()
	text := files(t)["docs/algorithms.md"]
	for _, k := range algorithm.Kinds {
		_, section, ok := strings.Cut(text, "\n## "+limits.Constructor(k)+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !ok || !k.Slots && !strings.Contains(section, "](pictures/"+k.Name+".svg)") {
			t.Errorf("docs/algorithms.md: got no section %q with the picture %s.svg, want one", "## "+limits.Constructor(k), k.Name)
		}
	}
}

// TestLuaIsShown checks that docs/algorithms.md shows the current Lua file of TokenBucket.
func TestLuaIsShown(t *testing.T) {
	t.Parallel()
	lua, err := os.ReadFile("../../algorithm/lua/token_bucket.lua")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(files(t)["docs/algorithms.md"], "\n```lua\n"+string(lua)+"```\n") {
		t.Error("docs/algorithms.md: got another text than lua/token_bucket.lua: copy the file")
	}
}
