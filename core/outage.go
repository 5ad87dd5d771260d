package core

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/health"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// FailLocal makes each process enforce the limits by its own counts, in bounded memory (see
// [MaxKeys]), while Redis does not answer. It is the default. N processes then admit up to N times
// the limit, unless [Processes] says how many there are. Each process keeps its counts after the
// outage, so if Redis fails repeatedly, the counts do not begin at 0 each time.
func FailLocal() Option { return policy(failLocal) }

// FailOpen admits everything while Redis does not answer, even for a banned key. There are two
// exceptions: a limit of 0 still denies, and [DenyCache] still repeats a denial for up to a second.
// The Results of what FailOpen admits have [SourceNone]. FailOpen suits limits that only smooth
// traffic.
func FailOpen() Option { return policy(failOpen) }

// FailClosed makes calls return [ErrUnavailable] while Redis does not answer, and the middleware
// answers with status 503. Only decisions that need no answer of Redis are still made: admissions
// from a [Lease], denials that [DenyCache] repeats, denials by a limit of 0, and admissions by limits
// that count nothing, such as [Unlimited]. (With the option [Ban], limits that count nothing do not
// admit either, because only Redis knows whether the key is banned.) FailClosed suits logins and
// payments.
func FailClosed() Option { return policy(failClosed) }

func policy(p outagePolicy) Option {
	return setting{"outage policy", p.String(), true, "", func(c *config) { c.policy = p }}
}

// withoutRedis decides c by the outage policy, after Redis has failed with err. The policy does not apply
// if the context of the caller has ended, or if err comes from a hook of the client: withoutRedis then
// returns the error that failure returns.
func (f *family) withoutRedis(ctx context.Context, err error, c *decision.Call, r *decision.Reply) error {
	if err = f.failure(ctx, err); !errors.Is(err, ErrUnavailable) {
		return err
	}
	switch {
	case f.policy == failLocal:
		return f.fallback.Decide(ctx, c, r)
	case c.Set.Uncounted && c.Set.Exceeded(c.N) > 0: // denied by a limit of 0, whether the key is banned or not
		f.decideUncounted(c, r)
		return nil
	case f.policy == failClosed:
		return err
	default:
		r.Allowed, r.Set = true, c.Set // the Source stays Nobody
		return nil
	}
}

// hooks returns the functions that report the events of the store to the observers and the log.
func (f *family) hooks() *redisstore.Hooks {
	var refused, panicked minutely
	return &redisstore.Hooks{
		ScriptLoaded: func(ctx context.Context) { f.events.emitContained(ctx, "", Event{Kind: EventScriptLoad}) },
		CallFailed: func(ctx context.Context, err error, notServer bool) {
			level, message := slog.LevelDebug, "redislimit: a call to redis failed"
			if notServer && refused.due() > 0 { // the error begins no outage, so nothing else is logged at this level
				level, message = slog.LevelWarn, "redislimit: redis answers, but refused a call"
			}
			f.events.logContained(ctx, level, message, "error", err)
			f.events.emitContained(ctx, "", Event{Kind: EventOutage, Err: err})
		},
		HookPanicked: func(ctx context.Context, err *batch.HookError) {
			if panicked.due() > 0 {
				f.events.logContained(ctx, slog.LevelError, "redislimit: a hook of the client panicked", "error", err, "stack", string(err.Stack))
			}
		},
		ServerChanged: f.serverChanged,
	}
}

// serverChanged emits the events of a change in the health of a server. It also logs the change if c.Log
// is set.
func (f *family) serverChanged(ctx context.Context, c health.Change) {
	log := func(level slog.Level, message string, more ...any) {
		if c.Log {
			f.events.logContained(ctx, level, "redislimit: "+message, append([]any{"server", c.Address}, more...)...)
		}
	}
	message := "redis does not answer: " + f.policy.String() + " decides"
	if errors.Is(c.Cause, ErrUnsupported) {
		message = "redis cannot be used: " + f.policy.String() + " decides"
	}
	switch c.Event {
	case health.WentDown:
		log(slog.LevelWarn, message, "error", c.Cause)
		f.events.emitContained(ctx, "", Event{Kind: EventBreaker, Server: c.Address, Err: c.Cause, Detail: "open"})
		f.events.emitContained(ctx, "", Event{Kind: EventFallbackOn, Server: c.Address, Err: c.Cause, Detail: f.policy.String()})
		return
	case health.StillDown:
		log(slog.LevelWarn, message, "error", c.Cause, "for", c.Lasted.Round(time.Millisecond))
		return
	case health.CameBack:
		log(slog.LevelInfo, "redis answers again", "after", c.Lasted.Round(time.Millisecond))
	case health.TakenOver:
		log(slog.LevelInfo, "another server has its keys now", "after", c.Lasted.Round(time.Millisecond))
	}
	f.events.emitContained(ctx, "", Event{Kind: EventBreaker, Server: c.Address, Detail: "closed"})
	f.events.emitContained(ctx, "", Event{Kind: EventFallbackOff, Server: c.Address})
}

// share returns this process's share of the limits, which the fallback enforces.
func (f *family) share(configured []Limit) []Limit {
	shared := make([]Limit, len(configured))
	for i, limit := range configured {
		shared[i] = limit.shared(int64(f.processes))
	}
	return shared
}
