package core

import (
	"errors"
	"fmt"
	"time"
)

// maxCapacityTime is the longest time in which a bucket may drain: beyond it
// microseconds since the epoch would no longer be exact in Redis.
const maxCapacityTime = 100 * 365 * day

// A Limit is one algorithm with its rate: the promise that a [Limiter] keeps for
// each key. It is made by [TokenBucket], [FixedWindow] and their
// like, and is itself an [Option] of [New]. A wrong rate or option is reported by
// New.
type Limit struct {
	algorithm *algorithm
	rate      Rate
	burst     int64 // as asked for; 0 for the default
	aligned   bool
	name      string // as asked for; "" for the default
	misuse    string // the first option that makes no sense here
}

// A LimitOption adjusts a [Limit]: [Burst], [Aligned] or [Name].
type LimitOption func(*Limit)

// Burst sets the capacity of a bucket: how many units may be used at once after
// a rest, from 1 to 1e9. The default is the rate's count. The capacity must
// drain within 100 years. The window algorithms have no burst: New refuses it
// there.
func Burst(n int64) LimitOption {
	return func(l *Limit) {
		switch {
		case !l.algorithm.bucket:
			l.misused(fmt.Sprintf("Burst(%d): a %s has no burst, allowed for buckets only", n, l.algorithm.name))
		case n < 1 || n > maxCount:
			l.misused(fmt.Sprintf("Burst(%d): allowed is 1 to %d", n, maxCount))
		}
		l.burst = n
	}
}

// Aligned makes the windows of a [FixedWindow] start at multiples of its period
// since the Unix epoch, the same instant for every key, instead of at a key's
// first request. New refuses it on any other algorithm.
func Aligned() LimitOption {
	return func(l *Limit) {
		if l.algorithm != fixedWindow {
			l.misused(fmt.Sprintf("Aligned(): a %s has no windows to align, allowed for FixedWindow only", l.algorithm.name))
		}
		l.aligned = true
	}
}

// Name sets what the Limit is called in results and in its Redis keys: letters,
// digits and "_.-", at most 64. A named Limit keeps its state when its period
// changes. The default is the algorithm and the period, such as "token-1m".
func Name(name string) LimitOption {
	return func(l *Limit) {
		if !validName(name) {
			l.misused(fmt.Sprintf("Name(%.80q): allowed are 1 to %d letters, digits and \"_.-\"", name, maxName))
		}
		l.name = name
	}
}

func newLimit(a *algorithm, r Rate, options []LimitOption) Limit {
	l := Limit{algorithm: a, rate: r}
	for _, option := range options {
		if option == nil {
			l.misused("a nil LimitOption: leave it out")
			continue
		}
		option(&l)
	}
	return l
}

func (l *Limit) misused(message string) {
	if l.misuse == "" {
		l.misuse = message
	}
}

// Name returns what the Limit is called: the name given to it, or else its
// algorithm and period, such as "token-1m".
func (l Limit) Name() string {
	if l.name != "" || l.algorithm == nil {
		return l.name
	}
	tag := l.algorithm.tag
	if l.aligned {
		tag = "aligned"
	}
	return tag + "-" + formatPeriod(l.rate.period)
}

// Algorithm returns the algorithm's name, such as "token_bucket".
func (l Limit) Algorithm() string {
	if l.algorithm == nil {
		return ""
	}
	return l.algorithm.name
}

// Rate returns the rate that the Limit was made with.
func (l Limit) Rate() Rate { return l.rate }

// Burst returns the capacity: the most units that can be used at once. For a
// window it is the rate's count.
func (l Limit) Burst() int64 {
	switch {
	case l.burst > 0:
		return l.burst
	case l.algorithm != nil && l.algorithm.burst != nil:
		return l.algorithm.burst(l.rate)
	}
	return l.rate.count
}

// String returns the Limit as one would write it, such as "token_bucket 100/1m".
func (l Limit) String() string { return l.Algorithm() + " " + l.rate.String() }

func (l Limit) apply(c *config) { c.limits = append(c.limits, l) }

func (l Limit) validate() error {
	if l.algorithm == nil {
		return errors.New("a Limit{}: make it with FixedWindow, TokenBucket or another algorithm")
	}
	if l.misuse != "" {
		return errors.New(l.misuse)
	}
	if err := l.rate.validate(); err != nil {
		return err
	}
	if l.algorithm.bucket && newRatio(l.rate).times(l.Burst()).w > maxCapacityTime.Microseconds() {
		return fmt.Errorf("a burst of %d takes longer to drain than the %d years allowed: lower Burst or raise the rate",
			l.Burst(), maxCapacityTime/(365*day))
	}
	if l.algorithm.validate != nil {
		return l.algorithm.validate(l)
	}
	return nil
}

// micros turns a time that the algorithms count into a Duration.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
