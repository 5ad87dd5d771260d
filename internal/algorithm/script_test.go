package algorithm_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// everyLimit returns limits of every algorithm. At some of their rates, the time of a unit is a whole number of
// microseconds, and at others it is not.
func everyLimit() []algorithm.Limit {
	var all []algorithm.Limit
	for _, k := range append(slices.Clone(algorithm.Kinds), algorithm.Calendar) {
		for _, count := range []int64{3, 7, 90} {
			l := algorithm.Numbers{Count: count, Period: 60_000_000, Burst: count}
			all = append(all, algorithm.Limit{Kind: k, Evaluator: k.New(l)})
			if k.Aligns {
				l.Aligned = true
				all = append(all, algorithm.Limit{Kind: k, Evaluator: k.New(l)})
			}
		}
	}
	return all
}

// FuzzDecodeReply decodes any reply. Either DecodeReply returns an error, or the Outcome of the reply is within its
// bounds. Nothing panics.
func FuzzDecodeReply(f *testing.F) {
	f.Add([]byte(nil), int64(1))
	f.Add(make([]byte, 8*5), int64(1))
	f.Add(make([]byte, 8*15), int64(3))
	f.Add(make([]byte, 8*8), int64(1))
	for _, numbers := range [][]int64{
		{1, 1_800_000_000_000_000, 0, 0, 0}, {0, 1_800_000_000_000_000, 60_000_000, 0, 0},
		{1, 1_800_000_000_000_000, 0, 1_800_000_000_000_000, 60_000_000}, {2, 0, 0, 0, 0},
		{1, 1 << 62, 1 << 62, 1 << 62, 1 << 62}, {1, -1, -1, -1, -1}, {1, 0, -1 << 63, -1 << 63, -1 << 63},
	} {
		var raw []byte
		for _, n := range numbers {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(n))
		}
		f.Add(raw, int64(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, n int64) {
		reply := make([]int64, len(raw)/8)
		for i := range reply {
			reply[i] = int64(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		for _, m := range everyLimit() {
			answers := make([]algorithm.Answer, 1)
			if err := algorithm.DecodeReply(reply, algorithm.Operation{Op: algorithm.OpCharge, N: n, Handles: make([]algorithm.Handle, 1)}, []algorithm.Limit{m}, answers); err != nil {
				continue
			}
			for _, charged := range []bool{false, answers[0].Admits} {
				capacity, _ := m.Capacity()
				out := m.Outcome(answers[0].Observation, max(0, min(n, 3)), answers[0].Admits, charged)
				if out.Remaining < 0 || out.Remaining > capacity || out.RetryAfter < 0 || out.ResetAfter < 0 || out.Delay < 0 {
					t.Errorf("%s, %v: %+v", m.Name, reply, out)
				}
			}
		}
	})
}
