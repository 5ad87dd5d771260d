package algorithm_test

import (
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// TestReplyBounds has a server reply with numbers of units for a LeakyBucket's free places: numbers from 2^30 on, which no limit
// has, would be packed into the bits of another number, and are refused.
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

// TestAdopt has the numbers of a LeakyBucket change in memory: the place that is promised stays, and what a new rate makes of the
// units begins an epoch of its own. Other algorithms keep their states as they are.
func TestAdopt(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	for _, m := range members() {
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
