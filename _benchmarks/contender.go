package main

import (
	"context"
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

// incr is the contender that all are compared with.
const incr = "raw INCR"

// A contender is one way to decide about a request.
type contender struct {
	name string
	kind kind
	// everyday is for those that a run measures unless told otherwise.
	everyday bool
	// limits is whether it decides at all: a raw command admits everything.
	limits bool
	// only tells where it makes sense; nil: everywhere.
	only func(cell) bool
	// excuses tells which errors are its way to decide under contention. They are
	// counted and shown; any other error ends the run.
	excuses func(error) bool
	// make makes the limiter over a world.
	make func(*world) (limiter, error)

	id int // its keys are its own
}

// A limiter returns what decides for one caller. Callers do not share it.
type limiter func() decide

// decide makes one decision.
type decide func(ctx context.Context, key string) (allowed bool, err error)

// shared is a limiter whose callers may share everything.
func shared(d decide) limiter { return func() decide { return d } }

// A world is what the limiters of a cell stand on.
type world struct {
	cell

	rdb   *redis.Client // a connection for each caller, and ContextTimeoutEnabled
	stock *redis.Client // without the latter, as go-redis makes it by default
	addr  string
	limit limit
	id    int
}

// name is a name for a limiter that nobody shares.
func (w *world) name() string { return fmt.Sprintf("%c%02d", w.scenario[0], w.id) }

// A limit is count units in each period.
type limit struct {
	count  int64
	period time.Duration
}

// contenders lists all, in the order of the tables.
func contenders() []*contender {
	all := append(raws(), library()...)
	all = append(all, peers()...)
	for i, c := range all {
		c.id = i
	}
	return all
}

// raws are the commands of Redis that the rest is measured by.
func raws() []*contender {
	return []*contender{
		{name: "raw PING", kind: raw, everyday: true, make: func(w *world) (limiter, error) {
			return shared(func(ctx context.Context, _ string) (bool, error) { return true, w.rdb.Ping(ctx).Err() }), nil
		}},
		{name: incr, kind: raw, everyday: true, make: func(w *world) (limiter, error) {
			return shared(func(ctx context.Context, key string) (bool, error) { return true, w.rdb.Incr(ctx, key).Err() }), nil
		}},
		{name: "raw script", kind: raw, everyday: true, make: func(w *world) (limiter, error) {
			script := redis.NewScript(bareScript)
			return shared(func(ctx context.Context, key string) (bool, error) {
				return true, script.EvalSha(ctx, w.rdb, []string{key}).Err()
			}), script.Load(context.Background(), w.rdb).Err()
		}},
	}
}

// bareScript does what every script must that reads the server's clock and keeps
// a string that expires, and no more: what bounds a limiter on Redis from below.
const bareScript = `
local time = redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], time[2], 'PX', 60000)
return 1`
