package core

import (
	"context"
	"log/slog"
	"time"
)

// An EventKind says what an [Event] is about.
type EventKind uint8

// The kinds of events.
const (
	// EventDecision is a decision of AllowN, allowed or denied, whoever made it.
	EventDecision EventKind = iota + 1
	// EventOutage is a call that Redis did not answer, with the cause in Err. Calls
	// that were not even made, because the breaker is open, give no such event.
	EventOutage
	// EventFallbackOn is when Redis is given up for a while, with the cause in Err.
	EventFallbackOn
	// EventFallbackOff is when Redis decides again.
	EventFallbackOff
	// EventBreaker is a change of the breaker, to the state in Detail: "open",
	// "half-open" or "closed".
	EventBreaker
	// EventScriptLoad is when Redis did not have the script and it was sent whole.
	EventScriptLoad
	// EventKeyFallback is a request without the key that was asked for, counted by its
	// peer's address.
	EventKeyFallback
)

// String returns the kind's name, such as "decision".
func (k EventKind) String() string {
	names := [...]string{"", "decision", "outage", "fallback_on", "fallback_off", "breaker", "script_load", "key_fallback"}
	if int(k) < len(names) {
		return names[k]
	}
	return ""
}

// An Event is something that happened in a [Limiter]; see [Observe]. It has no key:
// keys are personal data, and too many for a metric's labels.
type Event struct {
	Kind    EventKind     // what it is about; the kind says which of the other fields are set
	Limiter string        // the Limiter's name
	Result  Result        // of an EventDecision; the zero Result if Err is set
	Cost    int64         // of an EventDecision, in units
	Took    time.Duration // of an EventDecision: how long it took to make
	Err     error         // why, where something went wrong
	Detail  string        // of an EventBreaker: its new state
}

// Observe has observer called with every [Event], in the goroutine in which it
// happens: it must be fast and safe for concurrent use. Given more than once, all
// the observers are called, in that order. Without any events cost next to nothing.
func Observe(observer func(ctx context.Context, e Event)) Option {
	return optionFunc(func(c *config) {
		if observer == nil {
			c.failf("Observe(nil): want a function")
		}
		first := c.observe
		if first == nil {
			c.observe = observer
			return
		}
		c.observe = func(ctx context.Context, e Event) {
			first(ctx, e)
			observer(ctx, e)
		}
	})
}

// Logger sets where the Limiter logs: one line when Redis fails and one when it
// answers again, never one for each request. The default is [slog.Default], as it
// is at the time.
func Logger(logger *slog.Logger) Option {
	return optionFunc(func(c *config) {
		if logger == nil {
			c.failf("Logger(nil): want a *slog.Logger")
		}
		c.logger = logger
	})
}

// An emitter tells what happens to whoever wants to know.
type emitter struct {
	limiter string
	observe func(ctx context.Context, e Event)
	logger  *slog.Logger
}

func (m *emitter) emit(ctx context.Context, e Event) {
	if m.observe != nil {
		e.Limiter = m.limiter
		m.observe(ctx, e)
	}
}

func (m *emitter) log(ctx context.Context, level slog.Level, message string, attrs ...any) {
	logger := m.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Log(ctx, level, message, append(attrs, "limiter", m.limiter)...)
}

// Emit passes an Event of an adapter's on to the observer of the Limiter, with the
// Limiter's name. Without an observer it does nothing.
func (l *Limiter) Emit(ctx context.Context, e Event) { l.events.emit(ctx, e) }

// Logger returns the logger given to the option [Logger], or else [slog.Default] as
// it is at the time. The middleware and key functions log there, too.
func (l *Limiter) Logger() *slog.Logger {
	if l.events.logger != nil {
		return l.events.logger
	}
	return slog.Default()
}
