package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeldKeys has keys remembered for as long as they have holds, and others not: but for those
// of a cell that had to remember two.
func TestHeldKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h heldKeys
		h.init()
		if h.has("a") || h.cells.Load() != nil {
			t.Error("nothing was added")
		}
		h.add("a", time.Second)
		var beside []string // of the cell of a
		for i := 0; len(beside) < 3; i++ {
			cell, tag := h.at(h.cells.Load(), "a")
			key := fmt.Sprint(i)
			if c, other := h.at(h.cells.Load(), key); c == cell && other != tag {
				beside = append(beside, key)
			}
		}
		expect := func(when, a, b, c string) {
			t.Helper()
			got := [3]string{}
			for i, key := range []string{"a", beside[0], beside[1]} {
				got[i] = map[bool]string{true: "held", false: "-"}[h.has(key)]
			}
			if got != [3]string{a, b, c} {
				t.Errorf("%s: %v, want %v", when, got, [3]string{a, b, c})
			}
		}
		expect("one", "held", "-", "-")
		h.add("a", time.Millisecond)
		time.Sleep(900 * time.Millisecond)
		expect("one, added again for less", "held", "-", "-")
		time.Sleep(200 * time.Millisecond)
		expect("over", "-", "-", "-")
		h.add("a", time.Second)
		h.add(beside[0], 2*time.Second)
		expect("two", "held", "held", "held")
		time.Sleep(1500 * time.Millisecond)
		expect("two, of which one is over", "held", "held", "held")
		h.add("a", 100*time.Millisecond)
		time.Sleep(time.Second)
		expect("both over", "-", "-", "-")
		h.add(beside[1], time.Second)
		expect("another", "-", "-", "held")
	})
}
