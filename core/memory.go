package core

import "github.com/redislimit/redislimit/internal/memory"

// NewMemory returns a Limiter that lives in this process and needs no Redis: the
// same algorithms, counted here alone. Each call makes a Limiter of its own,
// whatever its name. It suits tests, and services of one process.
//
// Its memory is bounded by [Entries]. When that many keys are held, a new one
// takes the place of one of 16 others, chosen at random: of one whose full limit is
// available again, or else of the one whose limit is used least. So new keys are
// always served, and a key that is used up is forgotten only where nearly all are. A
// [SlidingWindowLog] keeps, besides, 24 bytes for each admitted call in its window.
//
// It takes the options of [New] and checks them alike; those about Redis have no
// effect.
func NewMemory(name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts)
	if err != nil {
		return nil, err
	}
	l := newLimiter(name, c)
	l.memory = memory.New(c.entries, l.compiled.evaluators, l.id)
	return l, nil
}
