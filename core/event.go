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
	// EventDecision is a decision, allowed or denied, by any [Source], or a call that ended with an
	// error instead of a decision; Err then has the error. Peek emits no event. Neither does a call that
	// is refused at once, for example because of its cost or its key. A caller that waits emits an
	// EventDecision when it is admitted or finally denied; the denials before that emit none. If the
	// caller gives up while it waits for its turn, there is only an EventWait.
	EventDecision EventKind = iota + 1
	// EventOutage is a call to Redis that failed, because Redis did not answer or because it refused
	// the call. Err has the cause. If a whole batch failed, there is one event for the batch. While the
	// circuit breaker is open, no decision calls Redis, so the last of these events are about calls that
	// were in flight when the circuit breaker opened.
	EventOutage
	// EventFallbackOn means that the outage policy begins to decide. Err has the cause.
	EventFallbackOn
	// EventFallbackOff means that Redis decides again, or that the Limiter was closed during the
	// outage. One such event follows each EventFallbackOn, unless the Limiter was dropped without
	// Close. If Redis decides again, Server is the server that answers now. After a failover, for example
	// by Sentinel, this server differs from the Server of the EventFallbackOn. So do not use Server to
	// find the EventFallbackOn that belongs to an EventFallbackOff.
	EventFallbackOff
	// EventBreaker is a change of the circuit breaker. Detail is its new state, "open" or "closed".
	EventBreaker
	// EventScriptLoad means that Redis did not have the script, so the Limiter sent the whole
	// script.
	EventScriptLoad
	// EventKeyFallback is a request for which the key function of a middleware has found no key. Err
	// says why. The request is counted by the fallback key: the address of the peer, unless the
	// middleware has another fallback that finds a key.
	EventKeyFallback
	// EventSlots is a change of the number of [InFlight] slots that this process holds. Cost is the
	// change; it is negative if slots were given back or lost. In Result, only LimiterName and
	// LimitName are set.
	EventSlots
	// EventSlotLost means that slots were lost before their work ended: they could not be renewed
	// in time, or Redis has lost them. Cost is the number of these slots.
	EventSlotLost
	// EventLease is a change of the number of units that this process has on lease; see [Lease].
	// Cost is the change. At the end of a lease, Cost is negative, and Spent is how many of its
	// units were spent, or are still held by a Reservation; the other units are given back.
	EventLease
	// EventOverload is about calls that this process could not send to Redis in time, because too many
	// calls wait in the process. Redis is not at fault. Cost is the number of these calls. If a
	// decision could not be sent, the outage policy decides. At most one such event is emitted per
	// second.
	EventOverload
	// EventBan is a ban that this process has begun. Took is its duration. If a denial began the ban,
	// Result is that denial. If [Limiter.Block] began it, there is no Result.
	// [Limiter.Unblock] also emits an EventBan, with a Took of 0. [Limiter.BlockAtLeast]
	// emits an EventBan even if the key has a longer ban already. If one of these three calls fails
	// while it changes the ban, its EventBan has an Err. See [Ban].
	EventBan
	// EventCancel is a [Permit] or [Reservation] that was canceled or settled at 0, and gives back
	// Cost units. It does not say whether Redis has received this. [AllowAll] and similar functions
	// emit it, too, for a key that they have reserved and give back, because another key was denied. A
	// caller whose context ends before the decision gets no Permit or Reservation: then there is an
	// EventDecision with an Err instead of an EventCancel.
	EventCancel
	// EventWait is the end of a wait. Took is how long it lasted. Either a caller has waited in
	// [Limiter.Wait] or a similar method, or a middleware has held a request: for the Delay of a
	// [LeakyBucket], or because of the option WaitUpTo. Result is the Result that admitted the
	// caller, or the zero Result if the wait was given up; Err then says why.
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

// An Event is something that happened in a [Limiter]; see [Observe]. It has no key, because keys
// are personal data, and too many for the labels of a metric.
type Event struct {
	// Kind says what happened, and so which of the other fields are set.
	Kind EventKind
	// Limiter is the name of the Limiter.
	Limiter string
	// Result is the Result of an EventDecision or EventWait, or the zero Result if Err is set. For
	// an EventBan it is the denial that began the ban, if any. For an EventSlots, only its LimiterName and
	// LimitName are set.
	Result Result
	// Cost is a number of units. For an EventDecision or EventWait, it is the cost that was asked
	// for; if [Limiter.AllowUpTo] has granted a part of the units, it is that part. For other events,
	// the description of the Kind says what it is; for an EventOverload it is a number of calls.
	Cost int64
	// Spent is how many units of a lease were spent. Only the EventLease at the end of a lease has it.
	Spent int64
	// Took is how long an EventDecision or EventWait took, or how long the ban of an EventBan lasts.
	Took time.Duration
	// Err says what went wrong, if anything did.
	Err error
	// Detail is the new state for an EventBreaker, and the outage policy for an EventFallbackOn.
	Detail string
	// Server is the address of the server, if it is known, for an EventBreaker, EventFallbackOn or
	// EventFallbackOff.
	Server string
}

// An observerOption is an observer, as it was given to Observe or to ObserveKeys.
type observerOption struct {
	option string                                         // "Observe" or "ObserveKeys"
	plain  func(ctx context.Context, e Event)             // nil for ObserveKeys
	keyed  func(ctx context.Context, key string, e Event) // nil for Observe
}

// An emitter passes events to the observers and messages to the logger.
type emitter struct {
	limiter   string
	observers []observerOption
	logger    *slog.Logger // nil for slog.Default

	panicked atomic.Bool // whether the panic of an observer was logged
	warned   sync.Map    // the messages of warnOnce (each with true) and of errorMinutely (each with a *minutely)
}

// emit passes an event to the observers. key is empty for an event without a key. If an observer panics, emit
// panics, too, and does not call the remaining observers: the panic reaches the caller of the method that caused
// the event. See emitContained.
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

// emitContained is like emit, but recovers the panic of an observer, logs the first such panic, and calls
// the remaining observers. It is for all events other than EventDecision, EventWait and
// EventKeyFallback: these other events may happen in the background, or in a call of another Limiter.
func (m *emitter) emitContained(ctx context.Context, key string, e Event) {
	e.Limiter = m.limiter
	for _, o := range m.observers {
		m.contain(ctx, o, key, e)
	}
}

func (m *emitter) contain(ctx context.Context, o observerOption, key string, e Event) {
	defer func() {
		if value := recover(); value != nil && !m.panicked.Swap(true) {
			m.logContained(ctx, slog.LevelError, "redislimit: an observer panicked", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	o.observe(ctx, key, e)
}

// notify emits an event that has neither a key nor a caller.
func (m *emitter) notify(e Event) { m.emitContained(context.Background(), "", e) }

func (m *emitter) log() *slog.Logger { return cmp.Or(m.logger, slog.Default()) }

func (m *emitter) logAt(ctx context.Context, level slog.Level, message string, attrs ...any) {
	m.log().Log(ctx, level, message, append(attrs, "limiter", m.limiter)...)
}

// logContained is like logAt, but recovers a panic of the logger's Handler. Like emitContained, it is for what may
// happen in the background, where the panic would end the program. The panic is reported nowhere, because panics
// are reported to the logger.
func (m *emitter) logContained(ctx context.Context, level slog.Level, message string, attrs ...any) {
	defer func() { _ = recover() }()
	m.logAt(ctx, level, message, attrs...)
}

// warnOnce logs a warning, unless it has already been called with the same message.
func (m *emitter) warnOnce(ctx context.Context, message string) {
	if _, before := m.warned.LoadOrStore(message, true); !before {
		m.logContained(ctx, slog.LevelWarn, "redislimit: "+message+"; this is logged once")
	}
}

// errorMinutely logs an error, at most once per minute for each message, so that clients cannot fill the
// log. The log line has the number of calls of errorMinutely with this message since it was last logged.
func (m *emitter) errorMinutely(ctx context.Context, message string, err error) {
	last, _ := m.warned.LoadOrStore(message, new(minutely))
	if n := last.(*minutely).due(); n > 0 { //nolint:forcetypeassert // no message is logged in two ways
		m.logAt(ctx, slog.LevelError, "redislimit: "+message, "error", err, "requests", n)
	}
}

// minutely limits an action to once per minute.
type minutely struct{ last, count atomic.Int64 }

// due returns 0 if the action must not happen now. Otherwise it returns how many times due was called
// since the action last happened, including this call.
func (m *minutely) due() int64 {
	m.count.Add(1)
	now, last := time.Now().Unix(), m.last.Load()
	if now >= last && now-last < 60 || !m.last.CompareAndSwap(last, now) {
		return 0
	}
	return m.count.Swap(0)
}

// An overload counts calls that this process could not send to Redis in time. They are reported
// together, because an event and a log line for each call would take time that the process lacks.
type overload struct {
	calls  atomic.Int64 // calls that were not reported yet
	logged minutely
}

// count counts a call. A second after the first call was counted, all calls that were counted so far are
// reported together, and the count begins at 0 again. policy is the name of the outage policy.
func (o *overload) count(m *emitter, policy string) {
	if o.calls.Add(1) == 1 {
		time.AfterFunc(time.Second, func() { o.notify(m, policy) })
	}
}

// notify reports the calls that were not reported yet: always to the observers, and to the log at most once per
// minute.
func (o *overload) notify(m *emitter, policy string) {
	ctx, calls := context.Background(), o.calls.Swap(0)
	m.emitContained(ctx, "", Event{Kind: EventOverload, Cost: calls, Err: redisstore.ErrQueue})
	if o.logged.due() > 0 {
		m.logContained(ctx, slog.LevelWarn, "redislimit: this process is overloaded: "+policy+" decides",
			"error", redisstore.ErrQueue, "calls in a second", calls)
	}
}
