package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// TestQueue has more decisions than are sent in time. Those that are not say whose fault it is: this
// process's, if the server answers others, or the server's, if it answers none.
func TestQueue(t *testing.T) {
	t.Parallel()
	const timeout, callers = 500 * time.Millisecond, 1000
	slow := func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
	for name, c := range map[string]struct {
		answer func(context.Context) error
		want   []error // of those that are not answered
		not    []error
	}{
		"slow": {slow, []error{ErrQueue, ErrSentLate}, []error{errHeldUp, context.DeadlineExceeded}},
		"hung": {silence, []error{errHeldUp, context.DeadlineExceeded}, []error{ErrQueue, ErrSentLate}},
	} {
		t.Run(name, func(t *testing.T) {
			withFake(t, func(t *testing.T, f *fake) {
				f.set(c.answer)
				s := f.store(timeout)
				s.MaxBatch = 10
				s.single = s.newBatcher(s.servers.whole)
				s.servers.whole.sharding.state.Store(keysTogether)
				errs := make([]error, callers)
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						var took time.Duration
						if took, errs[i] = s.decide(t.Context()); took > timeout+timeout/64 {
							t.Errorf("a caller waited for %v", took)
						}
					})
				}
				all.Wait()
				for _, want := range c.want {
					if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, want) }) {
						t.Errorf("no decision says: %v", want)
					}
				}
				for _, not := range c.not {
					if i := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, not) }); i >= 0 {
						t.Errorf("a decision says: %v", errs[i])
					}
				}
			})
		})
	}
}
