package core

import "time"

// An outagePolicy says who decides while Redis does not.
type outagePolicy uint8

const (
	failLocal outagePolicy = iota
	failOpen
	failClosed
)

func (p outagePolicy) String() string {
	return [...]string{"FailLocal", "FailOpen", "FailClosed"}[p]
}

// FailLocal has each process go on enforcing the limits by itself, in bounded
// memory, while Redis does not answer. It is the default. N processes then admit
// up to N times the limit, unless [Replicas] says how many there are. The memory
// outlives the outage: one that comes and goes gives no fresh budget each time.
func FailLocal() Option { return policy(failLocal) }

// FailOpen admits everything while Redis does not answer; such Results have
// SourceNone. It suits limits that only smooth traffic.
func FailOpen() Option { return policy(failOpen) }

// FailClosed admits nothing while Redis does not answer: the error is
// [ErrUnavailable], and the middleware answers 503. It suits logins and payments.
func FailClosed() Option { return policy(failClosed) }

func policy(p outagePolicy) Option {
	return optionFunc(func(c *config) {
		c.set(p.String(), inRedis)
		if c.policySet {
			c.failf("%v and %v: choose one", c.policy, p)
		}
		c.policy, c.policySet = p, true
	})
}

// Replicas says that n processes share the limits, from 1 to 1e6: with [FailLocal]
// each then enforces 1/n of them, at least one unit. The default is 1.
func Replicas(n int) Option {
	return optionFunc(func(c *config) {
		c.set("Replicas", inRedis)
		if n < 1 || n > 1e6 {
			c.failf("Replicas(%d): allowed is 1 to %d", n, int(1e6))
		}
		c.replicas = n
	})
}

// defaultTimeout is far above what a healthy Redis takes, a fork, a lost packet or
// a busy machine included, and still a delay that a person bears once.
const defaultTimeout = time.Second

// Timeout sets how long Redis may take for one decision, all in all, from 1
// millisecond to 1 minute, whatever the options of the client. After that the
// outage policy decides. The default is 1 s: to take a busy
// machine for an outage would have processes count apart, and an outage costs the
// timeout once per cooldown of a second, not with every request.
func Timeout(d time.Duration) Option {
	return optionFunc(func(c *config) {
		c.set("Timeout", inRedis)
		if d < time.Millisecond || d > time.Minute {
			c.failf("Timeout(%v): allowed is %v to %v", d, time.Millisecond, time.Minute)
		}
		c.timeout = d
	})
}

// A fallback decides while Redis does not.
type fallback struct {
	policy outagePolicy
	local  *memory // for failLocal
}

func newFallback(l *Limiter, c *config) *fallback {
	f := &fallback{policy: c.policy}
	if c.policy == failLocal {
		share := make([]decider, len(c.limits))
		for i, limit := range c.limits {
			share[i] = limit.algorithm.compile(limit.part(int64(c.replicas)))
		}
		f.local = newMemory(l, defaultEntries, share, SourceFallback)
	}
	return f
}

// part returns 1/n of the limit, at least one unit of each of its numbers.
func (l Limit) part(n int64) Limit {
	capacity := l.Burst()
	l.rate.count = max(1, l.rate.count/n)
	if l.algorithm.bucket {
		l.burst = max(1, capacity/n)
	}
	return l
}

// decideWithout decides while Redis does not, because of err.
func (l *Limiter) decideWithout(res *Result, key string, n int64, charge bool, err error) error {
	switch f := l.fallback; f.policy {
	case failClosed:
		return err
	case failOpen:
		*res = Result{Allowed: true, Name: l.names[0], At: time.Now()}
	default:
		f.local.decide(res, key, n, charge)
	}
	return nil
}
