package planted

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// history makes something stored, plants a value in its place, and goes on: no operation fails, what is admitted from
// then on stays within the limit, and what is written expires. Then the clock goes on, and it is so again.
func history(t testing.TB, client *redis.Client, seed uint64, raw string) {
	t.Helper()
	w := newWorld(t, client, seed)
	client.Del(t.Context(), key, key+"2")
	own := w.members
	w.members = append([]algorithm.Member{w.before}, own[1:]...)
	for range w.IntN(5) {
		w.step()
	}
	w.members = own
	w.planted(raw)
	if w.IntN(4) == 0 {
		w.hold(w.members, algorithm.HoldCall{Op: algorithm.OpReset, N: 1})
	}
	for range pick(w, 1, 1, 3) {
		for range 1 + w.IntN(12) {
			w.step()
		}
		w.advance()
	}
	w.hold(w.members, algorithm.HoldCall{Op: algorithm.OpReset, N: 1})
}

// TestPlanted plants values by fixed seeds: FuzzPlanted goes on.
func TestPlanted(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	runs, err := strconv.Atoi(os.Getenv("REDISLIMIT_PLANTED_RUNS"))
	if err != nil {
		runs = 1500
	}
	for seed := range uint64(runs) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { history(t, client, seed, "") })
	}
}

// FuzzPlanted plants random values of every type, mutations of the scripts' own among them, and texts.
func FuzzPlanted(f *testing.F) {
	client := redistest.Server(f).Client(f)
	f.Add(uint64(1), "")
	f.Add(uint64(2), "B1 10 "+strings.Repeat("9", 400))
	f.Add(uint64(3), fmt.Sprintf("F1 3 %d|5 %d %d:3", begin, begin-1, begin+1))
	f.Fuzz(func(t *testing.T, seed uint64, raw string) { history(t, client, seed, raw) })
}

var _ = time.Second
