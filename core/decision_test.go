package core_test

import (
	"testing"

	"github.com/redislimit/redislimit/core"
)

// TestDecided calls Decided on everything that a call may return. A call that failed returns a nil *Reservation, which is
// not nil when it is stored in a Decision, so Decided must accept it.
func TestDecided(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(1)))
	res, err := lim.Allow(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	denied, err := lim.Reserve(t.Context(), "k", 1)
	if err != nil {
		t.Fatal(err)
	}
	failed, err := core.ReserveAll(t.Context(), 1, lim.On(""))
	if err == nil {
		t.Fatal("ReserveAll accepted an empty key, want an error")
	}
	permit, err := lim.Acquire(t.Context(), "another", 1)
	if err != nil {
		t.Fatal(err)
	}
	noPermit, err := core.AcquireAll(t.Context(), 1, lim.On(""))
	if err == nil {
		t.Fatal("AcquireAll accepted an empty key, want an error")
	}
	for name, c := range map[string]struct {
		decision core.Decision
		want     core.Result
	}{
		"Result":                {res, res},
		"Reservation":           {denied, denied.Result},
		"no Reservation":        {failed, core.Result{}},
		"no Result":             {core.Result{}, core.Result{}},
		"an empty *Reservation": {new(core.Reservation), core.Result{}},
		"Permit":                {permit, permit.Result},
		"no Permit":             {noPermit, core.Result{}},
		"an empty *Permit":      {new(core.Permit), core.Result{}},
	} {
		if got := c.decision.Decided(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if !res.Decided().Allowed || !permit.Decided().Allowed || denied.Decided().Allowed {
		t.Error("want the first request and the one for another key to be admitted, and the second one denied")
	}
}
