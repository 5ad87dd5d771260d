package core

import "github.com/redislimit/redislimit/internal/memory"

// NewMemory returns a Limiter that counts in this process, by the same algorithms,
// and needs no Redis. Limiters that it returns share nothing, even if they have the
// same name. It suits tests, and services of one process.
//
// Its memory is bounded by [Entries]. When that many keys are held, a new one
// replaces one of 16 that are chosen at random: one whose full limit is available
// again, or else the one whose limit is used least. So a new key is always counted,
// and a key that is used up is rarely evicted unless nearly all keys are. A
// [SlidingWindowLog] also keeps 24 bytes for each admitted call in its window.
//
// It takes the options of [New] and checks them alike; those about Redis have no
// effect.
func NewMemory(name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts)
	if err != nil {
		return nil, err
	}
	f, limits := newFamily(name, c)
	f.memory = memory.New(c.entries, f.id)
	return f.limiter(limits), nil
}
