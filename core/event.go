package core

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/redisstore"
)

// An EventKind says what an [Event] is about.
type EventKind uint8

// The kinds of events.
const (
	// EventDecision is a decision, allowed or denied, of any [Source]; Peek makes none. While a
	// caller waits, what denies it is none: there is one when it is admitted, or its request is
	// denied after all. A call about several keys, such as [AllowAll], makes one for each key if all
	// admit, and otherwise only for the keys that deny. Where keys are asked one after the other, there
	// is also one for each key whose units were held before another key denied, and then an EventCancel.
	EventDecision EventKind = iota + 1
	// EventOutage is a call that Redis did not answer, with the cause in Err. While the circuit
	// breaker is open no decision calls Redis: the last such events are of calls that were in flight
	// when it opened.
	EventOutage
	// EventFallbackOn is when the outage policy begins to decide, with the cause in Err.
	EventFallbackOn
	// EventFallbackOff is when Redis decides again, or the Limiter is closed before it does. One
	// follows each EventFallbackOn, unless the Limiter was dropped without Close. Its Server is the
	// server that answers now. After a failover, as by Sentinel, this is another address than that of
	// the EventFallbackOn: do not rely on it to find the outage that is over.
	EventFallbackOff
	// EventBreaker is a change of the circuit breaker, to the state in Detail: "open" or "closed".
	EventBreaker
	// EventScriptLoad is when Redis did not have the script and it was sent whole.
	EventScriptLoad
	// EventKeyFallback is a request without the key that was asked for, counted by the fallback
	// key: its peer's address, unless the middleware has another.
	EventKeyFallback
	// EventSlots is a change of the slots of an [InFlight] that this process holds, by Cost:
	// negative where they were given back or lost. Result has the names of the limit and the
	// Limiter alone.
	EventSlots
	// EventSlotLost is the loss of Cost slots whose work has not ended: they could not be renewed
	// in time, or Redis has lost them.
	EventSlotLost
	// EventLease is a change of the units that this process has on lease, by Cost; see [Lease]. It
	// is negative where a lease has ended: Spent of its units were spent, and the others are given
	// back.
	EventLease
	// EventOverload is Cost calls that this process could not send to Redis in time, because too
	// many wait in it: Redis is not at fault. The outage policy made those that were decisions.
	// There is at most one such event a second.
	EventOverload
	// EventBan is a ban that has begun in this process, for as long as Took says: by a denial,
	// which is the Result, or by [Limiter.Block]; of [Limiter.Unblock] Took is 0.
	// [Limiter.BlockAtLeast] makes one each time, also where the ban that is there lasts longer.
	// See [Ban].
	EventBan
	// EventCancel is a [Permit] or a [Reservation] that was canceled, or settled at 0, and gives back its Cost
	// units. It does not say whether Redis has heard of it. A caller that left before it had a
	// Reservation makes an EventDecision with an Err.
	EventCancel
	// EventWait is the end of a wait, of Took: of [Limiter.Wait] and its kin, or of a request in a
	// middleware, for the Delay of a [LeakyBucket] or by its option WaitUpTo. Result is what
	// admitted it, the zero Result if Err says why it was given up.
	EventWait
)

// String returns the kind's name, such as "decision".
func (k EventKind) String() string {
	names := [...]string{
		"", "decision", "outage", "fallback_on", "fallback_off", "breaker", "script_load", "key_fallback", "slots", "slot_lost", "lease",
		"overload", "ban", "cancel", "wait",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return ""
}

// An Event is something that happened in a [Limiter]; see [Observe]. It has no key: keys are
// personal data, and too many for a metric's labels.
type Event struct {
	Kind    EventKind     // what it is about; the kind says which of the other fields are set
	Limiter string        // the Limiter's name
	Result  Result        // of an EventDecision or EventWait; the zero Result if Err is set. Of an EventBan the denial. Of an EventSlots two names
	Cost    int64         // in units, of all kinds that say so, of an EventDecision and an EventWait; of an EventOverload, in calls
	Spent   int64         // of an EventLease that is the end of a lease, in units
	Took    time.Duration // of an EventDecision: how long it took to make. Of an EventBan or EventWait: how long it lasts
	Err     error         // why, where something went wrong
	Detail  string        // of an EventBreaker its new state, of an EventFallbackOn the policy
	Server  string        // of an EventBreaker, EventFallbackOn or EventFallbackOff: the server's address, where it is known
}

// An observerOption has one of two functions.
type observerOption struct {
	option string
	plain  func(ctx context.Context, e Event)
	keyed  func(ctx context.Context, key string, e Event)
}

// An emitter passes events to the observers and messages to the logger.
type emitter struct {
	limiter   string
	observers []observerOption
	logger    *slog.Logger // nil for slog.Default

	panicked atomic.Bool // it has been logged that an observer did
	warned   sync.Map    // the messages that are logged once, or once a minute
}

// emit passes on an event of a key; key is empty where it has none.
func (m *emitter) emit(ctx context.Context, key string, e Event) {
	e.Limiter = m.limiter
	for _, o := range m.observers {
		o.observe(ctx, key, e)
	}
}

func (o observerOption) observe(ctx context.Context, key string, e Event) {
	if o.plain != nil {
		o.plain(ctx, e)
	} else {
		o.keyed(ctx, key, e)
	}
}

// emitContained is emit where an observer's panic is nobody else's, also no other observer's.
func (m *emitter) emitContained(ctx context.Context, key string, e Event) {
	e.Limiter = m.limiter
	for _, o := range m.observers {
		m.contain(ctx, o, key, e)
	}
}

func (m *emitter) contain(ctx context.Context, o observerOption, key string, e Event) {
	defer func() {
		if value := recover(); value != nil && !m.panicked.Swap(true) {
			m.logAt(ctx, slog.LevelError, "redislimit: an observer panicked", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	o.observe(ctx, key, e)
}

// tell passes on an event of no key and no caller.
func (m *emitter) tell(e Event) { m.emitContained(context.Background(), "", e) }

func (m *emitter) log() *slog.Logger { return cmp.Or(m.logger, slog.Default()) }

func (m *emitter) logAt(ctx context.Context, level slog.Level, message string, attrs ...any) {
	m.log().Log(ctx, level, message, append(attrs, "limiter", m.limiter)...)
}

// warnOnce logs a message once for each call of New or NewMemory.
func (m *emitter) warnOnce(ctx context.Context, message string) {
	if _, before := m.warned.LoadOrStore(message, true); !before {
		m.logAt(ctx, slog.LevelWarn, "redislimit: "+message+"; this is logged once")
	}
}

// errorMinutely logs an error once a minute, whatever clients do, with how many had this message
// since it was logged.
func (m *emitter) errorMinutely(ctx context.Context, message string, err error) {
	last, _ := m.warned.LoadOrStore(message, new(minutely))
	if n := last.(*minutely).due(); n > 0 { //nolint:forcetypeassert // no message is logged in two ways
		m.logAt(ctx, slog.LevelError, "redislimit: "+message, "error", err, "requests", n)
	}
}

// minutely is what happens once a minute at most.
type minutely struct{ last, asked atomic.Int64 }

// due returns 0 if it may not happen now, or else how often it was asked for since it last
// happened.
func (m *minutely) due() int64 {
	m.asked.Add(1)
	now, last := time.Now().Unix(), m.last.Load()
	if now >= last && now-last < 60 || !m.last.CompareAndSwap(last, now) {
		return 0
	}
	return m.asked.Swap(0)
}

// An overload is of the process: calls that could not be sent to Redis in time. They are told of
// together: an event and a line for each would take time that the process lacks.
type overload struct {
	calls  atomic.Int64 // that are not told of yet
	logged minutely
}

// count counts a call.
func (o *overload) count(m *emitter, policy string) {
	if o.calls.Add(1) == 1 {
		time.AfterFunc(time.Second, func() { o.tell(m, policy) })
	}
}

func (o *overload) tell(m *emitter, policy string) {
	ctx, calls := context.Background(), o.calls.Swap(0)
	m.emitContained(ctx, "", Event{Kind: EventOverload, Cost: calls, Err: redisstore.ErrQueue})
	if o.logged.due() > 0 {
		m.logAt(ctx, slog.LevelWarn, "redislimit: this process is overloaded: "+policy+" decides",
			"error", redisstore.ErrQueue, "calls in a second", calls)
	}
}
