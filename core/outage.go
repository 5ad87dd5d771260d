package core

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/server"
)

// An outagePolicy is what decides while Redis does not.
type outagePolicy uint8

const (
	failLocal outagePolicy = iota
	failOpen
	failClosed
)

func (p outagePolicy) String() string {
	return [...]string{"FailLocal", "FailOpen", "FailClosed"}[p]
}

// FailLocal has each process enforce the limits by itself, in bounded memory (see
// [Entries]), while Redis does not answer. It is the default. N processes then admit
// up to N times the limit, unless [Processes] says how many there are. The counts
// are kept after the outage, so a Redis that comes and goes does not reset them.
func FailLocal() Option { return policy(failLocal) }

// FailOpen admits everything while Redis does not answer; such Results have
// SourceNone. It suits limits that only smooth traffic.
func FailOpen() Option { return policy(failOpen) }

// FailClosed admits nothing while Redis does not answer: the error is
// [ErrUnavailable], and the middleware answers 503. It suits logins and payments.
func FailClosed() Option { return policy(failClosed) }

func policy(p outagePolicy) Option {
	return setting{"outage policy", p.String(), true, "", func(c *config) { c.policy = p }}
}

// A fallback decides in this process while Redis does not: each limit, or this
// process's share of it.
type fallback struct {
	store     *memory.Store
	processes int64
}

func newFallback(c *config) *fallback {
	if c.policy != failLocal {
		return nil
	}
	return &fallback{memory.New(c.entries, nil), int64(c.processes)}
}

// share returns this process's share of limits.
func (f *fallback) share(asked []Limit) []Limit {
	shared := make([]Limit, len(asked))
	for i, limit := range asked {
		shared[i] = limit.shared(f.processes)
	}
	return shared
}

// hooks returns what tells the observers and the log about Redis.
func (f *family) hooks() server.Hooks {
	var unexpected minutely
	return server.Hooks{
		ScriptLoaded: func(ctx context.Context) { f.events.emitContained(ctx, Event{Kind: EventScriptLoad}) },
		CallFailed: func(ctx context.Context, err error) {
			level, message := slog.LevelDebug, "redislimit: a call to redis failed"
			if errors.Is(err, algorithm.ErrReply) && unexpected.due() {
				level, message = slog.LevelWarn, "redislimit: redis replied what the scripts never reply: "+f.policy.String()+" decides"
			}
			f.events.logAt(ctx, level, message, "error", err)
			f.events.emitContained(ctx, Event{Kind: EventOutage, Err: err})
		},
		BreakerChange: f.breakerChanged,
	}
}

// breakerChanged emits what happened to a server, and logs it if no other limiter
// over the same client does.
func (f *family) breakerChanged(ctx context.Context, c server.Change) {
	e := Event{Kind: EventBreaker, Server: c.Server, Err: c.Cause, Detail: c.To.String()}
	f.events.emitContained(ctx, e)
	switch {
	case c.From == server.BreakerClosed:
		message := "redislimit: redis does not answer: " + f.policy.String() + " decides"
		if errors.Is(c.Cause, ErrUnsupported) {
			message = "redislimit: redis cannot be used: " + f.policy.String() + " decides"
		}
		if c.Log {
			f.events.logAt(ctx, slog.LevelWarn, message, "server", c.Server, "error", c.Cause)
		}
		f.events.emitContained(ctx, Event{Kind: EventFallbackOn, Server: c.Server, Err: c.Cause, Detail: f.policy.String()})
	case c.To == server.BreakerClosed:
		if c.Log {
			f.events.logAt(ctx, slog.LevelInfo, "redislimit: redis answers again", "server", c.Server)
		}
		f.events.emitContained(ctx, Event{Kind: EventFallbackOff, Server: c.Server})
	}
}
