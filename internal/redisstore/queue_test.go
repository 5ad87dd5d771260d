package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// TestQueue makes more decisions than can be sent in time. The errors of those that are too late must
// say who is at fault: this process if the server answers some decisions, and the server if it answers
// none.
func TestQueue(t *testing.T) {
	t.Parallel()
	const timeout, callers = 500 * time.Millisecond, 1000
	// The third answer comes after 390 ms, and the fourth too late: no answer comes exactly at the timeout.
	slow := func(context.Context) error { time.Sleep(130 * time.Millisecond); return nil }
	for name, c := range map[string]struct {
		answer func(context.Context) error
		want   []error // errors that decisions must have
		not    []error // errors that no decision may have
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
				s.servers.whole.sharding.state.Store(oneScript)
				errs := make([]error, callers)
				check.Together(callers, func(i int) {
					var took time.Duration
					if took, errs[i] = s.decide(t.Context()); took > timeout+timeout/64 {
						t.Errorf("a caller waited for %v", took)
					}
				})
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
