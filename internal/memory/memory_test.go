package memory

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A faulty is an Evaluator that panics.
type faulty struct{ algorithm.Evaluator }

func (faulty) Evaluate(*algorithm.State, int64, int64) (algorithm.Observation, bool) {
	panic("a fault")
}

// TestShardSize checks that the padding of a shard still fits its fields.
func TestShardSize(t *testing.T) {
	t.Parallel()
	if size := reflect.TypeFor[shard]().Size(); strconv.IntSize == 64 && size != 128 {
		t.Errorf("a shard has %d bytes, want 128", size)
	}
}

// TestPanicHoldsNoLock makes operations panic, as a fault in an algorithm would. The Store can still decide on other
// keys.
func TestPanicHoldsNoLock(t *testing.T) {
	t.Parallel()
	well := algorithm.Limit{
		Kind: algorithm.FixedWindow, Evaluator: algorithm.FixedWindow.New(algorithm.Numbers{Count: 1, Period: 3600e6}), HoldDuration: 60e6,
	}
	ill := well
	ill.Evaluator = faulty{well.Evaluator}
	m, limits, answers := New(1, nil), NewLimits([]algorithm.Limit{ill}, []string{"a"}, nil), make([]algorithm.Answer, 1)
	call := algorithm.Operation{Op: algorithm.OpReserve, N: 1, Handles: make([]algorithm.Handle, 1)}
	for name, panics := range map[string]func(){
		"Decide": func() { m.Decide(limits, "k", 1, true, answers) },
		"Hold":   func() { m.DecideHold(limits, "k", call, answers) },
		"End": func() {
			m.End(limits, "k", algorithm.Operation{Op: algorithm.OpSettle, N: 1, Actual: 2, Handles: call.Handles})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			panics()
		}()
		if !m.shards[0].TryLock() {
			t.Fatalf("after a panic of %s the lock is held", name)
		}
		m.shards[0].Unlock()
		m.Decide(NewLimits([]algorithm.Limit{well}, []string{"a"}, nil), name, 1, true, answers)
		if !answers[0].Admits {
			t.Errorf("after a panic of %s: %+v", name, answers)
		}
	}
}
