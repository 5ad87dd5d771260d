package core

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// decideByStub answers what the stub admits as if nothing had been charged to the key before, and
// what it denies as if all were used.
func (l *Limiter) decideByStub(c call, to target) error {
	method := "AllowN"
	switch {
	case c.op == algorithm.OpEvaluate:
		method = "Peek"
	case c.op == algorithm.OpReserve:
		method = "Reserve"
	case to.reservation != nil:
		method = "Acquire"
	}
	retryAfter, err := l.family.stub.Call(method, c.key, c.n)
	if err != nil {
		return fmt.Errorf("%w: limiter %q: %w", ErrUnavailable, l.family.name, err)
	}
	if c.n == 0 {
		c.op = algorithm.OpEvaluate
	}
	answers := make([]algorithm.Answer, len(l.by.Members))
	for i, m := range l.by.Members {
		answers[i].Evaluate(m.Evaluator, &algorithm.State{}, stubAt, c.n)
		answers[i].Admits = answers[i].Admits && retryAfter <= 0
	}
	c.fill(to.Result, l.by, answers, SourceMemory)
	if retryAfter > 0 {
		useUp(to.Result, retryAfter)
	}
	if to.Allowed {
		to.attach(to.newHold(l, c, l.by), l.keeper)
	}
	return nil
}

// stubAt is the instant of all decisions of stubs, in microseconds since the epoch: the beginning
// of 2000, as in testing/synctest.
const stubAt = 946_684_800_000_000

// useUp turns r, of a key to which nothing was charged, into that of a key of which all is used,
// and will be for so long.
func useUp(r *Result, d time.Duration) {
	r.Remaining, r.Delay = 0, 0
	if r.Window > 0 { // when slots are free is not known
		r.ResetAfter = d
	}
	if !r.Allowed && r.RetryAfter != Never {
		r.RetryAfter = d
	}
	if r.all != nil {
		for i := range *r.all {
			useUp(&(*r.all)[i], d)
		}
	}
}
