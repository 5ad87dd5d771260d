package algorithm_test

import (
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// TestReplyBounds decodes replies about the free places of a LeakyBucket. Numbers of units from 2^30 on are refused:
// no limit has so many, and they would be packed into the bits of another number.
func TestReplyBounds(t *testing.T) {
	t.Parallel()
	leaky := algorithm.Limit{Kind: algorithm.LeakyBucket, Evaluator: algorithm.LeakyBucket.New(algorithm.Numbers{Count: 10, Period: 60_000_000, Burst: 10})}
	const at, most = 1_800_000_000_000_000, 1<<30 - 1
	for _, c := range []struct {
		before, largest int64
		valid           bool
	}{{0, 0, true}, {3, 7, true}, {most, 0, true}, {0, most, true}, {most, most, true}, {most + 1, 0, false}, {0, most + 1, false}, {-1, 0, false}} {
		reply := []int64{7, at, 0, 0, c.before, c.largest, 0, 0} // 7: admitted, with all numbers
		err := algorithm.DecodeReply(reply, algorithm.Operation{Op: algorithm.OpCharge, N: 1}, []algorithm.Limit{leaky}, make([]algorithm.Answer, 1))
		if (err == nil) != c.valid {
			t.Errorf("%d before the first free place and %d in the largest: %v, want valid: %v", c.before, c.largest, err, c.valid)
		}
	}
}

// TestAdopt changes the numbers of a limit in memory. If the rate of a LeakyBucket changes, a new epoch begins, but the
// queue ends when it was promised to. The states of other algorithms do not change.
func TestAdopt(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	for _, m := range everyLimit() {
		numbers := func(count int64) algorithm.Evaluator {
			return m.New(algorithm.Numbers{Count: count, Period: 60_000_000, Burst: count})
		}
		before, same, faster := numbers(6), numbers(6), numbers(60)
		var s algorithm.State
		var answer algorithm.Answer
		answer.Evaluate(before, &s, now, 3)
		before.Charge(&s, answer.Observation, 3)
		unchanged := s
		same.Adopt(&s, before, now)
		if s != unchanged {
			t.Errorf("%s: %+v, want %+v: the numbers are the same", m.Name, s, unchanged)
		}
		faster.Adopt(&s, before, now)
		if changed := s != unchanged; changed != m.Delays {
			t.Errorf("%s: %+v after a change of the rate, from %+v", m.Name, s, unchanged)
		}
		answer = algorithm.Answer{}
		answer.Evaluate(faster, &s, now, 1)
		if out := faster.Outcome(answer.Observation, 1, answer.Admits, false); m.Delays && out.Delay != 30_000_000 {
			t.Errorf("%s: a delay of %d µs, want the 30 s that were promised", m.Name, out.Delay)
		}
	}
}
