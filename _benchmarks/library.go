package main

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A variant is a way to use this library.
type variant struct {
	name     string
	everyday bool // measured with every algorithm unless told otherwise
	options  []core.Option
	client   func(*world) (core.Client, error)
}

// variants are the ways in which every algorithm is measured.
func variants() []variant {
	alone := []core.Option{core.Coalesce(1)}
	return []variant{
		{name: "coalesced", everyday: true, client: direct},
		{name: "coalesced, go-redis's defaults", client: func(w *world) (core.Client, error) { return w.stock, nil }},
		{name: "plain", client: direct, options: alone},
		{name: "autopipelined", client: autopipelined, options: alone},
	}
}

// algorithms are those of core. The log's limit is the same rate in a shorter
// period: it keeps each unit, and takes no limit above 100,000.
func algorithms() []algorithm {
	return []algorithm{
		{"FixedWindow", func(l limit) core.Limit { return core.FixedWindow(rate(l)) }},
		{"SlidingWindowLog", func(l limit) core.Limit {
			if l == plenty() {
				l = limit{l.count / 1000, l.period / 1000}
			}
			return core.SlidingWindowLog(rate(l))
		}},
		{"SlidingWindowCounter", func(l limit) core.Limit { return core.SlidingWindowCounter(rate(l)) }},
		{"TokenBucket", func(l limit) core.Limit { return core.TokenBucket(rate(l)) }},
		{"LeakyBucket", func(l limit) core.Limit { return core.LeakyBucket(rate(l)) }},
		{"GCRA", func(l limit) core.Limit { return core.GCRA(rate(l)) }},
	}
}

type algorithm struct {
	name  string
	limit func(limit) core.Limit
}

func rate(l limit) core.Rate { return core.Per(l.count, l.period) }

// chief is the algorithm that is measured in every way.
const chief = "TokenBucket"

func library() []*contender {
	var all []*contender
	for _, a := range algorithms() {
		for _, v := range variants() {
			all = append(all, &contender{
				name: a.name + ", " + v.name, kind: ours, everyday: v.everyday || a.name == chief, limits: true,
				make: func(w *world) (limiter, error) { return v.limiter(w, core.DenyCache(0), a.limit(w.limit)) },
			})
		}
	}
	for _, v := range variants() {
		if v.everyday {
			all = append(all, v.twoLimits(), v.denyCache())
		}
	}
	return all
}

// twoLimits are charged as one.
func (v variant) twoLimits() *contender {
	return &contender{
		name: "TokenBucket + FixedWindow, " + v.name, kind: ours, everyday: true, limits: true,
		make: func(w *world) (limiter, error) {
			return v.limiter(w, core.DenyCache(0), core.TokenBucket(rate(w.limit)), core.FixedWindow(rate(w.limit)))
		},
	}
}

// denyCache is this library as it comes: only in this variant is a denial
// remembered.
func (v variant) denyCache() *contender {
	return &contender{
		name: "TokenBucket, deny cache, " + v.name, kind: ours, everyday: true, limits: true,
		only: func(c cell) bool { return c.scenario == denied },
		make: func(w *world) (limiter, error) { return v.limiter(w, core.TokenBucket(rate(w.limit))) },
	}
}

// limiter makes a Limiter whose outage is an error. Its timeout is far: on a
// machine that is measured to its limits a slow answer is no outage.
func (v variant) limiter(w *world, options ...core.Option) (limiter, error) {
	client, err := v.client(w)
	if err != nil {
		return nil, err
	}
	options = append(append(options, core.FailClosed(), core.Timeout(10*time.Second)), v.options...)
	lim, err := core.New(client, w.name(), options...)
	if err != nil {
		return nil, err
	}
	return shared(func(ctx context.Context, key string) (bool, error) {
		res, err := lim.Allow(ctx, key)
		return res.Allowed, err
	}), nil
}

func direct(w *world) (core.Client, error) { return w.rdb, nil }

// autopipelined is go-redis's own way to share round trips. Its blocking call does
// not watch the context.
func autopipelined(w *world) (core.Client, error) { return w.rdb.AutoPipeline() }
