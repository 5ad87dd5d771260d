package docs

import (
	"os"
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

// TestLuaIsShown checks that docs/algorithms.md shows the Lua file of TokenBucket as it is.
func TestLuaIsShown(t *testing.T) {
	t.Parallel()
	lua, err := os.ReadFile("../../algorithm/lua/token_bucket.lua")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(files(t)["docs/algorithms.md"], "\n```lua\n"+string(lua)+"```\n") {
		t.Error("docs/algorithms.md does not show lua/token_bucket.lua as it is: copy it")
	}
}
