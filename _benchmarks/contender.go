package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A kind says what a contender is compared with.
type kind string

const (
	raw  kind = "raw"  // a command of Redis, without any limiter
	ours kind = "ours" // this library
	peer kind = "peer"
)

// incr is the contender that all others are compared with.
const incr = "raw INCR"

// A contender is one way to decide about a request.
type contender struct {
	name string
	kind kind
	// everyday contenders are measured without -full.
	everyday bool
	// limits is true for a limiter. A raw command admits every request.
	limits bool
	// pair is true if a decision takes two calls, one after the other. The chart leaves such contenders out.
	pair bool
	// only reports whether the contender takes part in a cell. If it is nil, the contender takes part in all cells.
	only func(cell) bool
	// excuses reports whether an error is normal for this contender under contention. Such errors are counted
	// and shown. Any other error ends the run.
	excuses func(error) bool
	// first makes a limiter that decides once for each key before anything is timed. It may be nil.
	first func(*setup) (limiter, error)
	// make makes the limiter.
	make func(*setup) (limiter, error)

	id int // part of the contender's keys, so that contenders share no keys
}

// A limiter returns a decide function for one caller. Callers do not share the function.
type limiter func() decide

// A decide makes one decision.
type decide func(ctx context.Context, key string) (allowed bool, err error)

// shared makes a limiter whose callers all use the same decide function.
func shared(d decide) limiter { return func() decide { return d } }

// A setup has what a contender needs to make its limiter.
type setup struct {
	cell
	*clients

	limit limit
	id    int
}

// name returns a unique name for a limiter.
func (w *setup) name() string { return fmt.Sprintf("%c%02d", w.scenario[0], w.id) }

// A limit is count units in each period.
type limit struct {
	count  int64
	period time.Duration
}

// contenders returns all contenders, in the order of the tables.
func contenders() []*contender {
	all := append(raws(), library()...)
	all = append(all, peers()...)
	for i, c := range all {
		c.id = i
	}
	return all
}

// raws returns the commands of Redis that the other contenders are compared with.
func raws() []*contender {
	return []*contender{
		{name: "raw PING", kind: raw, everyday: true, make: func(w *setup) (limiter, error) {
			return shared(func(ctx context.Context, _ string) (bool, error) { return true, w.rdb.Ping(ctx).Err() }), nil
		}},
		{name: incr, kind: raw, everyday: true, make: func(w *setup) (limiter, error) {
			return shared(func(ctx context.Context, key string) (bool, error) { return true, w.rdb.Incr(ctx, key).Err() }), nil
		}},
		{name: "raw INCR, rueidis", kind: raw, everyday: true, make: rueidisIncr},
		{name: "raw INCR, AutoPipeline", kind: raw, everyday: true, make: func(w *setup) (limiter, error) {
			auto, err := w.rdb.AutoPipeline()
			return shared(func(ctx context.Context, key string) (bool, error) { return true, auto.Incr(ctx, key).Err() }), err
		}},
		{name: "raw INCR and DECR", kind: raw, everyday: true, pair: true, only: isAdmitted, make: func(w *setup) (limiter, error) {
			return shared(func(ctx context.Context, key string) (bool, error) {
				return true, errors.Join(w.rdb.Incr(ctx, key).Err(), w.rdb.Decr(ctx, key).Err())
			}), nil
		}},
		{name: "raw script", kind: raw, everyday: true, make: func(w *setup) (limiter, error) {
			script := redis.NewScript(bareScript)
			return shared(func(ctx context.Context, key string) (bool, error) {
				return true, script.EvalSha(ctx, w.rdb, []string{key}).Err()
			}), script.Load(context.Background(), w.rdb).Err() // on a Cluster, all masters load it
		}},
	}
}

func isAdmitted(c cell) bool { return c.scenario == admitted }

// isSingle reports whether the cell has a single server instead of a Cluster.
func isSingle(c cell) bool { return !c.cluster }

// bareScript is the minimum of a script that reads the server's clock and stores a string that
// expires. No limiter of that kind can be faster.
const bareScript = `
local time = redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], time[2], 'PX', 60000)
return 1`
