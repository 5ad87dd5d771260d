package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// A variant is a way to use this library.
type variant struct {
	name     string
	everyday bool // measured with every algorithm, also without -full
	options  []core.Option
	client   func(*setup) (core.Client, error)
}

// variants returns the ways in which every algorithm is measured.
func variants() []variant {
	noBatches := []core.Option{core.MaxBatch(1)}
	return []variant{
		{name: "coalesced", everyday: true, client: direct},
		{name: "coalesced, go-redis's defaults", client: func(w *setup) (core.Client, error) { return w.stock, nil }},
		{name: "plain", client: direct, options: noBatches},
		{name: "autopipelined", client: autopipelined, options: noBatches},
	}
}

// limitOf returns the limit of an algorithm. An algorithm that stores each unit does not accept such a large
// count: it gets the same rate, with a thousandth of the period.
func limitOf(v limits.Variant, l limit) core.Limit {
	made := v.With(rate(l), limits.Settings{})
	if !limits.Accepts(made) {
		made = v.With(rate(limit{l.count / 1000, l.period / 1000}), limits.Settings{})
	}
	return made
}

func rate(l limit) core.Rate { return core.Per(l.count, l.period) }

// allVariants is the algorithm that is measured in every variant even without -full.
const allVariants = "TokenBucket"

// shownInRedis matches the contenders of -redis-cpu.
const shownInRedis = `^(TokenBucket|GCRA|FixedWindow|SlidingWindowCounter|TokenBucket \+ FixedWindow|All of TokenBucket and FixedWindow|` +
	`InFlight, Acquire and Release|TokenBucket, Reserve and Settle|TokenBucket, keys with a hold), coalesced$`

func library() []*contender {
	var all []*contender
	for _, a := range limits.Plain() {
		name := limits.Constructor(a.Kind)
		for _, v := range variants() {
			all = append(all, &contender{
				name: name + ", " + v.name, kind: ours, everyday: v.everyday || name == allVariants, limits: true,
				make: func(w *setup) (limiter, error) { return v.limiter(w, core.DenyCache(0), limitOf(a, w.limit)) },
			})
			if !a.Kind.Delays {
				all = append(all, v.reserve(a))
			}
		}
	}
	for _, v := range variants() {
		if v.everyday {
			all = append(all, v.twoLimits(), v.all(), v.denyCache(), v.inFlight(), v.held(), v.manyNumbers(), v.lease(100*time.Millisecond), v.lease(time.Second))
		}
	}
	return all
}

// reserve holds a unit and cancels it at once, so that nothing is charged, as CountIf does for a response
// that does not count.
func (v variant) reserve(a limits.Variant) *contender {
	name := limits.Constructor(a.Kind)
	return &contender{
		name: name + ", Reserve and Settle, " + v.name, kind: ours, limits: true, pair: true, only: isAdmitted,
		everyday: name == allVariants && len(v.options) == 0 && v.everyday,
		make: func(w *setup) (limiter, error) {
			lim, err := v.open(w, core.DenyCache(0), limitOf(a, w.limit))
			return shared(func(ctx context.Context, key string) (bool, error) {
				r, err := lim.Reserve(ctx, key, 1)
				if err != nil {
					return false, err
				}
				return r.Allowed, r.Cancel(ctx)
			}), err
		},
	}
}

// manyNumbers uses limits with 1,000 different numbers in turn, as if LimiterFor gave each customer another
// limit.
func (v variant) manyNumbers() *contender {
	return &contender{
		name: "TokenBucket, 1,000 numbers, " + v.name, kind: ours, everyday: true, limits: true,
		make: func(w *setup) (limiter, error) {
			lim, err := v.open(w, core.DenyCache(0), core.TokenBucket(rate(w.limit)))
			if err != nil {
				return nil, err
			}
			numbers := make([]core.Limit, 1000)
			for i := range numbers {
				l := w.limit
				l.count = max(1, l.count-int64(i))
				numbers[i] = core.TokenBucket(rate(l))
			}
			var next atomic.Uint64
			return shared(func(ctx context.Context, key string) (bool, error) {
				one, err := lim.With(numbers[next.Add(1)%uint64(len(numbers))])
				if err != nil {
					return false, err
				}
				res, err := one.Allow(ctx, key)
				return res.Allowed, err
			}), nil
		},
	}
}

// inFlight acquires a slot and releases it at once.
func (v variant) inFlight() *contender {
	return &contender{
		name: "InFlight, Acquire and Release, " + v.name, kind: ours, everyday: true, limits: true, pair: true, only: isAdmitted,
		make: func(w *setup) (limiter, error) {
			lim, err := v.open(w, core.DenyCache(0), core.InFlight(w.limit.count))
			return shared(func(ctx context.Context, key string) (bool, error) {
				r, err := lim.Acquire(ctx, key, 1)
				if err != nil {
					return false, err
				}
				return r.Allowed, r.Release(ctx)
			}), err
		},
	}
}

// held makes ordinary decisions on keys of which a unit is always held. It has one such key for a hundred keys
// of the cell, so that this process has decided on each of them recently, which is usual where units are held.
func (v variant) held() *contender {
	open := func(w *setup) (*core.Limiter, error) {
		return v.open(w, core.DenyCache(0), core.Hold(time.Hour), core.TokenBucket(rate(w.limit)))
	}
	return &contender{
		name: "TokenBucket, keys with a hold, " + v.name, kind: ours, limits: true, only: isAdmitted,
		first: func(w *setup) (limiter, error) {
			lim, err := open(w)
			return shared(func(ctx context.Context, key string) (bool, error) {
				r, err := lim.Reserve(ctx, hundredth(key), 1)
				return err == nil && r.Allowed, err
			}), err
		},
		make: func(w *setup) (limiter, error) {
			lim, err := open(w)
			return shared(func(ctx context.Context, key string) (bool, error) {
				res, err := lim.Allow(ctx, hundredth(key))
				return res.Allowed, err
			}), err
		},
	}
}

// hundredth maps a hundred keys to the same key: it drops the last two digits.
func hundredth(key string) string { return key[:len(key)-2] }

// twoLimits is a limiter with two limits; one of them is per day.
func (v variant) twoLimits() *contender {
	return &contender{
		name: "TokenBucket + FixedWindow, " + v.name, kind: ours, everyday: true, limits: true,
		make: func(w *setup) (limiter, error) {
			return v.limiter(w, core.DenyCache(0), core.TokenBucket(rate(w.limit)), core.FixedWindow(core.PerDay(w.limit.count)))
		},
	}
}

// all decides on the same two limits as twoLimits, but each belongs to a limiter and a key of its own.
func (v variant) all() *contender {
	return &contender{
		name: "All of TokenBucket and FixedWindow, " + v.name, kind: ours, limits: true,
		make: func(w *setup) (limiter, error) {
			one, err := v.open(w, core.DenyCache(0), core.TokenBucket(rate(w.limit)))
			if err != nil {
				return nil, err
			}
			other, err := v.open(w, core.DenyCache(0), core.FixedWindow(core.PerDay(w.limit.count)))
			return shared(func(ctx context.Context, key string) (bool, error) {
				res, err := core.AllowAll(ctx, 1, one.On(key), other.On("of:"+key))
				return res.Allowed, err
			}), err
		},
	}
}

// lease is a limiter that decides locally on frequently used keys.
func (v variant) lease(d time.Duration) *contender {
	return &contender{
		name: fmt.Sprintf("TokenBucket, Lease(%v), %s", d, v.name), kind: ours, everyday: true, limits: true, only: isAdmitted,
		make: func(w *setup) (limiter, error) {
			return v.limiter(w, core.DenyCache(0), core.Lease(d), limitOf(limits.Named("token_bucket"), w.limit))
		},
	}
}

// denyCache is a limiter with the deny cache. In all other contenders, the cache is off.
func (v variant) denyCache() *contender {
	return &contender{
		name: "TokenBucket, deny cache, " + v.name, kind: ours, everyday: true, limits: true,
		only: func(c cell) bool { return c.scenario == denied },
		make: func(w *setup) (limiter, error) { return v.limiter(w, core.TokenBucket(rate(w.limit))) },
	}
}

// limiter opens a Limiter and returns its Allow.
func (v variant) limiter(w *setup, options ...core.Option) (limiter, error) {
	lim, err := v.open(w, options...)
	return allow(lim), err
}

// open makes a Limiter that returns an error if Redis does not answer. The timeout is long, because replies
// are slow on a fully loaded machine.
func (v variant) open(w *setup, options ...core.Option) (*core.Limiter, error) {
	client, err := v.client(w)
	if err != nil {
		return nil, err
	}
	options = append(append(options, core.FailClosed(), core.Timeout(10*time.Second)), v.options...)
	if w.batch > 0 && v.options == nil { // the other variants never batch
		options = append(options, core.MaxBatch(w.batch))
	}
	return core.New(client, w.name(), options...)
}

func allow(lim *core.Limiter) limiter {
	return shared(func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Allow(ctx, key)
		return res.Allowed, err
	})
}

func direct(w *setup) (core.Client, error) { return w.rdb, nil }

// autopipelined uses go-redis's AutoPipeliner, which is another way to share round trips. Its blocking call
// ignores the context.
func autopipelined(w *setup) (core.Client, error) { return w.rdb.AutoPipeline() }
