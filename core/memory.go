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
// effect, so that tests can pass a service's own list. [Clock] is for it alone.
func NewMemory(name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts)
	if err != nil {
		return nil, err
	}
	f := newFamily(name, c)
	f.memory = memory.New(c.entries, c.clock)
	return f.limiter(c.limits), nil
}

// MustNewMemory is [NewMemory] for one-liners at program start: it panics where NewMemory returns
// an error.
func MustNewMemory(name string, opts ...Option) *Limiter { return must(NewMemory(name, opts...)) }

func must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}
