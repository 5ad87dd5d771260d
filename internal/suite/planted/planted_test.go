package planted

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// history makes a limiter store a value, replaces it by a planted value, and then uses the limiter.
func history(t testing.TB, client *redis.Client, seed uint64, raw string) {
	t.Helper()
	w := newWorld(t, client, seed, variants()...)
	own := w.members
	w.members = append([]algorithm.Limit{w.before}, own[1:]...)
	for range w.IntN(5) {
		w.step()
	}
	w.members = own
	w.planted(raw)
	if w.IntN(4) == 0 {
		w.reset()
	}
	w.goOn()
}

// goOn makes a limiter do everything that it may do after a value was planted. No operation may fail, admissions from then
// on must stay within the limit, and written values must expire. goOn repeats this after the clock advances.
func (w *world) goOn() {
	for range pick(w, 1, 1, 3) {
		for range 1 + w.IntN(12) {
			w.step()
		}
		w.advance()
	}
	w.reset()
}

// reset deletes what was charged.
func (w *world) reset() {
	w.hold(w.members, algorithm.Operation{Op: algorithm.OpReset, N: 1})
	w.charged = 0
}

// TestPlanted plants random values by fixed seeds. FuzzPlanted uses any seed.
func TestPlanted(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	runs, err := strconv.Atoi(os.Getenv("REDISLIMIT_PLANTED_RUNS"))
	if err != nil {
		runs = 600
	}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { history(t, client, seed, "") })
	}
}

// TestValueOfAnother makes a limiter of each algorithm find the value that a limiter of each other algorithm has stored, in
// each operation.
func TestValueOfAnother(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	for _, of := range variants() {
		for _, other := range variants() {
			t.Run(of.Name+" after "+other.Name, func(t *testing.T) {
				for op := algorithm.OpEvaluate; op <= algorithm.OpRelease; op++ {
					another := newWorld(t, client, uint64(op), other)
					for range 3 {
						another.step()
					}
					w := newWorldBeside(t, client, uint64(op), of)
					w.plant = fmt.Sprintf("%q", another.dump())
					w.loose = true // a bucket accepts the value of another bucket, and its settlements change what is left
					w.hold(w.members, algorithm.Operation{Op: op, N: 1, HoldID: w.id(), Handles: make([]algorithm.Handle, len(w.members))})
					w.goOn()
				}
			})
		}
	}
}

// TestEndsLeaveForeign ends and renews holds that do not exist: a foreign value stays as it is.
func TestEndsLeaveForeign(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	for _, v := range variants() {
		for _, op := range []algorithm.Op{algorithm.OpSettle, algorithm.OpRefund, algorithm.OpRenew, algorithm.OpRelease} {
			for n := range int64(2) {
				w := newWorld(t, client, 1, v)
				client.RPush(t.Context(), key, "a list")
				if n == 1 && v.Name != "sliding_window_log" && !v.Kind.Slots {
					client.Set(t.Context(), key, "a text", 0)
				}
				was := w.dump()
				w.hold(w.members, algorithm.Operation{Op: op, N: 1 + n, Handles: slices.Repeat([]algorithm.Handle{{A: 1, B: 1}}, len(w.members))})
				if w.dump() != was {
					t.Errorf("%s: operation %c on %d units changed the foreign value, want it unchanged", v.Name, op, 1+n)
				}
			}
		}
	}
}

// FuzzPlanted plants texts and random values of every type, including mutations of the scripts' own values.
func FuzzPlanted(f *testing.F) {
	client := redistest.Server(f).Client(f)
	f.Add(uint64(1), "")
	f.Add(uint64(2), "B1 10 "+strings.Repeat("9", 400))
	f.Add(uint64(3), fmt.Sprintf("F1 3 %d|H1 5 %d 3 %d", begin, begin-1, begin+1))
	f.Fuzz(func(t *testing.T, seed uint64, raw string) { history(t, client, seed, raw) })
}
