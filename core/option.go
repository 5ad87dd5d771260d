package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// An Option configures a [Limiter]. Every [Limit] is one, and at least one Limit
// is needed.
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// config is what the options of a Limiter add up to.
type config struct {
	limits    []Limit
	prefix    string
	entries   int
	policy    outagePolicy
	policySet bool
	replicas  int
	timeout   time.Duration
	denied    int
	together  int
	observe   func(context.Context, Event)
	logger    *slog.Logger
	where     place
	err       error // the first option that is wrong
}

// A place is where a Limiter's state is kept.
type place string

const (
	inRedis  place = "New"
	inMemory place = "NewMemory"
)

// Prefix sets what the Redis keys of the Limiter begin with, so that several
// applications can share one Redis: letters, digits and "_.-:", at most 64. The
// default is "rl".
func Prefix(prefix string) Option {
	return optionFunc(func(c *config) {
		if !validPrefix(prefix) {
			c.failf("Prefix(%.80q): allowed are 1 to %d letters, digits and \"_.-:\"", prefix, maxName)
		}
		c.set("Prefix", inRedis)
		c.prefix = prefix
	})
}

func (c *config) failf(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// set notes the use of an option that makes sense in one place only.
func (c *config) set(option string, only place) {
	if c.where != only {
		c.failf("%s: an option of %s, not of %s", option, only, c.where)
	}
}

// configure applies and checks the options of the Limiter called name.
func configure(name string, options []Option, where place) (*config, error) {
	c := &config{
		prefix: "rl", entries: defaultEntries, denied: defaultDenied, together: defaultTogether, timeout: defaultTimeout,
		replicas: 1, where: where,
	}
	if !validName(name) {
		return nil, fmt.Errorf("redislimit: limiter name %.80q: allowed are 1 to %d letters, digits and \"_.-\"", name, maxName)
	}
	for i, option := range options {
		if option == nil {
			return nil, fmt.Errorf("redislimit: limiter %q: option %d is nil: leave it out", name, i+1)
		}
		option.apply(c)
	}
	if c.err == nil {
		c.err = checkLimits(c.limits)
	}
	if c.replicas > 1 && c.policy != failLocal {
		c.failf("Replicas(%d): an option of FailLocal, not of %v", c.replicas, c.policy)
	}
	if c.err != nil {
		return nil, fmt.Errorf("redislimit: limiter %q: %w", name, c.err)
	}
	return c, nil
}

func checkLimits(limits []Limit) error {
	if len(limits) == 0 {
		return errors.New("no limit given: pass at least one, as in TokenBucket(PerMinute(100))")
	}
	first := make(map[string]Limit, len(limits))
	for _, l := range limits {
		if err := l.validate(); err != nil {
			return fmt.Errorf("limit %v: %w", l, err)
		}
		if other, taken := first[l.Name()]; taken {
			return fmt.Errorf("limits %v and %v are both called %q and would share one state: give one of them another Name",
				other, l, l.Name())
		}
		first[l.Name()] = l
	}
	return nil
}
