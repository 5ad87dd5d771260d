package lease

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// Events has functions that are called when a lease begins or ends. They are called without a lock.
type Events struct {
	Opened func(units int64)
	Closed func(units, spent int64) // spent includes units that are reserved and not settled yet
}

// Leases has the leases of one limiter. It is safe for concurrent use.
type Leases struct {
	d      time.Duration // the duration of a lease
	hot    *hotKeys
	now    func() Instant
	take   TakeFunc
	settle func([]*Closed) (failed []*Closed) // see New
	events Events

	onlyCallers bool // see Config

	underWay atomic.Int32 // how many exchanges and settlements of leases are in progress; Close waits for them

	// mu guards the fields below.
	mu      sync.Mutex
	open    map[*Lease]struct{} // leases that are not closed yet
	running bool                // whether the goroutine of closeInTime exists
	closed  bool                // whether Close was called, so that no more leases are taken
	lost    Lost                // what could not be given back since Close was called
}

// A TakeFunc asks Redis to hold units of a key for the duration of a lease.
type TakeFunc func(ctx context.Context, forLimits *limits.Set, key string, units int64) Grant

// A Grant is the result of a TakeFunc.
type Grant struct {
	Answers   []algorithm.Answer // nil if the units are not held
	Handles   []algorithm.Handle // nil if the units are not held
	Remaining int64              // how many units remained before the lease was taken; 0 if Redis did not reply or the key is banned
}

// A Config says how the leases of a limiter work. Services set only Duration, and every other field has a
// default. Tests set the other fields, for example to run several processes with clocks of their own.
type Config struct {
	Duration time.Duration  // the duration of a lease
	Clock    func() Instant // returns the time; nil means the clocks of this process

	// OnlyCallers means that nothing runs in the background: a lease is closed only by calls of Exchange,
	// CloseOld, Drop and Close. No caller waits for the exchange of another caller.
	OnlyCallers bool

	HotDecisions int64 // how many decisions on a key make it hot; 0 means the constant HotDecisions
	Share        int64 // a lease takes at most 1/Share of the units that remain; 0 means the constant share
}

// New returns the Leases of a limiter. settle asks Redis to settle closed leases, waits for the replies, and returns
// the leases that may not have been settled.
func New(c Config, take TakeFunc, settle func([]*Closed) (failed []*Closed), events Events) *Leases {
	if c.Clock == nil {
		c.Clock = processClock()
	}
	hot := newHotKeys(c.Duration)
	hot.hotDecisions, hot.share = cmp.Or(c.HotDecisions, hot.hotDecisions), cmp.Or(c.Share, hot.share)
	return &Leases{
		d: c.Duration, hot: hot, now: c.Clock, onlyCallers: c.OnlyCallers,
		take: take, settle: settle, events: events, open: make(map[*Lease]struct{}),
	}
}

// processClock returns a function that reads the clocks of this process.
func processClock() func() Instant {
	begun := time.Now()
	return func() Instant {
		now := time.Now()
		return Instant{time.Duration(now.UnixNano()), now.Sub(begun)}
	}
}

// Now returns the current Instant.
func (ls *Leases) Now() Instant { return ls.now() }

// A Lookup is the result of [Leases.Find].
type Lookup struct {
	Hot *HotKey // nil if the key is not hot

	key    string
	limits *limits.Set
	hash   uint64
	set    *hotSet
}

// Find looks up whether key is hot for the limits of forLimits.
func (ls *Leases) Find(key string, forLimits *limits.Set) Lookup {
	hash := ls.hot.hash(key)
	set := ls.hot.set(hash)
	return Lookup{Hot: set.find(key, forLimits), key: key, limits: forLimits, hash: hash, set: set}
}

// Count counts a request for the key of l, which was not hot. If this request makes the key hot, Count returns
// its HotKey; otherwise, or if another key has taken its place meanwhile, nil.
func (ls *Leases) Count(l Lookup, now Instant) *HotKey {
	return ls.hot.count(l.set, l.hash, l.key, l.limits, now.Mono)
}

// Heard records that Redis has decided on a hot key. n is how many units the decision admitted, and remaining is how
// many units remain after it.
func (ls *Leases) Heard(h *HotKey, n, remaining int64) {
	h.countDecisions(ls.now().Mono, ls.d, 1, n)
	h.heard(remaining)
}

// Lease returns the latest lease of the key, which may have ended, or nil if there was none. h may be nil.
func (h *HotKey) Lease() *Lease {
	if h == nil {
		return nil
	}
	return h.lease.Load()
}

// A Closed is a closed lease that must be settled. Redis holds Held units for the lease, of which Spent were
// spent. Neither number includes the units that are reserved, because each reservation settles its own units.
type Closed struct {
	*Lease

	Limits      *limits.Set
	Key         string
	Held, Spent int64
}

// closeLease closes a lease, so that no more units can be taken from it. It returns a Closed, which the caller must
// pass to settleClosed, because Drop waits for that, and to notifyClosed. It returns nil if there is nothing to
// settle, or if the lease was closed already.
func (ls *Leases) closeLease(le *Lease, now Instant) *Closed {
	le.hot.settling.Add(1) // before the lease is closed, so that Drop, which may find it closed, waits for the settlement
	state := le.state.Swap(leaseClosed)
	if state&leaseClosed != 0 {
		le.hot.settling.Add(-1)
		return nil
	}
	ls.mu.Lock()
	delete(ls.open, le)
	ls.mu.Unlock()
	held, left := le.units-reservedIn(state), leftIn(state)
	le.hot.countDecisions(now.Mono, ls.d, decisionsIn(state), le.units-left)
	c := &Closed{Lease: le, Limits: le.hot.limits, Key: le.hot.key, Held: held, Spent: held - left}
	if held == 0 {
		le.hot.settling.Add(-1)
		ls.notifyClosed(c)
		return nil
	}
	return c
}

// notifyClosed notifies the observers that a lease is closed. An observer may call Drop, which waits for settlements:
// the settlement of c must have ended, or another goroutine must make it, unless onlyCallers is set.
func (ls *Leases) notifyClosed(c *Closed) { ls.events.Closed(c.units, c.units-c.Held+c.Spent) }

// An exchange settles the latest lease of a key and takes the next one.
type exchange struct {
	room atomic.Int64  // how many units waiting requests can still claim; see Awaited
	done chan struct{} // closed when the exchange has ended
}

// Exchange closes seen, settles it, and takes another lease. seen is the lease that the caller has found to be the
// latest lease of h; it may be nil. n is the cost of the caller's request: if the next lease would have fewer
// than n units, Exchange does not take it. It also takes no lease that is not worth its cost, and none after
// Close. The calls to Redis are made in the background, unless onlyCallers is set; see Awaited for how a request
// waits for them. Exchange does nothing if another exchange for the key is in flight, or if the key has a newer
// lease than seen.
func (ls *Leases) Exchange(ctx context.Context, h *HotKey, n int64, seen *Lease, now Instant) {
	if h.exchange.Load() != nil {
		return
	}
	x := &exchange{done: make(chan struct{})}
	if !h.exchange.CompareAndSwap(nil, x) {
		return
	}
	ls.underWay.Add(1)
	defer ls.underWay.Add(-1)
	old, units := ls.change(h, seen, now)
	switch {
	case old == nil:
	case ls.onlyCallers:
		ls.notifyClosed(old)
	default:
		defer ls.notifyClosed(old) // when the goroutine that settles it has begun
	}
	if n > units {
		units = 0
	}
	x.room.Store(units)
	end := func() { // called by defer, so that it runs even if a hook of the client ends the goroutine
		h.exchange.Store(nil)
		close(x.done)
	}
	switch {
	case units > 0:
		ls.beside(func() {
			defer end()
			ls.takeLease(context.WithoutCancel(ctx), h, units)
		})
		if old != nil { // the next lease takes only a share of what remains, so the two calls are made at the same time
			ls.beside(func() { ls.settleClosed(old) })
		}
	case old != nil:
		if old.Spent < old.Held {
			x.room.Store(maxLeased) // there is no next lease, but requests wait for the units that the settlement frees
		}
		ls.beside(func() {
			defer end()
			ls.settleClosed(old)
		})
	default:
		end()
	}
}

// beside calls f in a goroutine of its own, or before it returns if onlyCallers is set. Close waits for f.
func (ls *Leases) beside(f func()) {
	ls.underWay.Add(1)
	run := func() {
		defer ls.underWay.Add(-1)
		f()
	}
	if ls.onlyCallers {
		run()
	} else {
		go run()
	}
}

// change closes the lease seen, if it is still the latest lease of h. It returns what must be settled, or nil; and
// how many units the next lease should have, or 0.
func (ls *Leases) change(h *HotKey, seen *Lease, now Instant) (old *Closed, units int64) {
	if h.lease.Load() != seen {
		return nil, 0
	}
	if seen != nil {
		old = ls.closeLease(seen, now)
	}
	if !ls.isClosed() {
		units = h.wanted(now.Mono, ls.hot)
	}
	return old, units
}

// Awaited is called for a request of n units that may wait for the exchange in flight for h. It claims n units of the
// next lease for the request, and returns a channel that is closed when the exchange ends. Awaited returns nil if
// no exchange is in flight, if fewer than n units of the next lease are unclaimed, or if onlyCallers is set. If the
// exchange takes no lease, but gives back units of the old one, every request may wait for it.
func (ls *Leases) Awaited(h *HotKey, n int64) <-chan struct{} {
	x := h.exchange.Load()
	if x == nil || ls.onlyCallers {
		return nil
	}
	if x.room.Add(-n) < 0 {
		x.room.Add(n)
		return nil
	}
	return x.done
}

// takeLease asks Redis for a lease of units of a hot key. If Redis grants the lease so late that it cannot be spent
// any more, or after Close was called, takeLease settles it at once.
func (ls *Leases) takeLease(ctx context.Context, h *HotKey, units int64) {
	sent := ls.now()
	g := ls.take(ctx, h.limits, h.key, units)
	if h.heard(g.Remaining); g.Handles == nil {
		return
	}
	now := ls.now()
	le := &Lease{hot: h, lasts: ls.d, units: units, Handles: g.Handles, sent: sent, granted: now, answers: g.Answers}
	le.state.Store(uint64(units))
	for i := range le.answers {
		le.answers[i].Admits = true
	}
	ls.events.Opened(le.units)
	if now.Since(sent) >= spendable(ls.d) || !ls.add(le) {
		ls.close([]*Lease{le}, now)
		return
	}
	h.lease.Store(le)
}

// isClosed reports whether Close was called.
func (ls *Leases) isClosed() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.closed
}

// add registers a lease, so that closeInTime closes it if no request does. It returns false if Close was called.
func (ls *Leases) add(le *Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ls.open[le] = struct{}{}
	if !ls.running && !ls.onlyCallers {
		ls.running = true
		go ls.closeInTime()
	}
	return true
}

// closeInTime closes each lease that no request has closed, some time before the lease ends; see CloseOld. It
// returns when no lease is open.
func (ls *Leases) closeInTime() {
	ticker := time.NewTicker(ls.d / 16)
	defer ticker.Stop()
	for range ticker.C {
		go ls.CloseOld() // in a goroutine: while Redis is slow to settle these leases, others must still be closed
		ls.mu.Lock()
		ls.running = len(ls.open) > 0
		running := ls.running
		ls.mu.Unlock()
		if !running {
			return
		}
	}
}

// CloseOld closes and settles the leases that will end soon; see margin. If a lease ends before Redis has settled
// it, Redis charges all units that it holds for the lease.
func (ls *Leases) CloseOld() {
	now := ls.now()
	ls.mu.Lock()
	var old []*Lease
	for le := range ls.open {
		if now.Since(le.sent) >= le.lasts-le.margin() {
			old = append(old, le)
		}
	}
	ls.mu.Unlock()
	ls.close(old, now)
}

// margin returns how long before its end the lease must be closed, so that the settlement arrives in time: three
// times as long as Redis took to grant it, but at least a quarter and at most half of its duration.
func (le *Lease) margin() time.Duration {
	return min(max(le.lasts/4, 3*le.granted.Since(le.sent)), le.lasts/2)
}

// close closes and settles leases. It returns after Redis has replied to the settlements, or they have failed. It
// does not wait for the settlement of a lease that was closed already.
func (ls *Leases) close(all []*Lease, now Instant) {
	ls.underWay.Add(1)
	defer ls.underWay.Add(-1)
	var closed []*Closed
	for _, le := range all {
		if c := ls.closeLease(le, now); c != nil {
			closed = append(closed, c)
		}
	}
	if len(closed) > 0 {
		ls.settleClosed(closed...)
	}
	for _, c := range closed {
		ls.notifyClosed(c)
	}
}

// settleClosed settles leases. After Close was called, it counts the unspent units that could not be given back.
func (ls *Leases) settleClosed(all ...*Closed) {
	failed := ls.settle(all)
	ls.mu.Lock()
	for _, c := range failed {
		if ls.closed && c.Held > c.Spent {
			ls.lost.Keys++
			ls.lost.Units += c.Held - c.Spent
		}
	}
	ls.mu.Unlock()
	for _, c := range all {
		c.hot.settling.Add(-1)
	}
}

// Drop closes the leases of a key, and waits until the settlements of all its closed leases have ended. If onlyCallers
// is set, Drop does not wait for settlements that other goroutines make. Otherwise it waits for them until ctx ends.
// Drop must be called before the key is reset, because a settlement after the reset would charge the key.
func (ls *Leases) Drop(ctx context.Context, key string) {
	var all []*Lease
	keys := ls.hot.all(key)
	for _, h := range keys {
		if le := h.lease.Load(); le != nil {
			all = append(all, le)
		}
	}
	ls.close(all, ls.now())
	for _, h := range keys {
		for !ls.onlyCallers && h.settling.Load() > 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// Lost counts units that Redis charges although they were not spent, unless only the reply to their settlement was
// lost. It also counts the keys of these units; a key counts once for each of its leases.
type Lost struct{ Keys, Units int64 }

// Close closes all leases, and waits until their settlements have ended. No leases are taken afterwards. Close
// returns the unspent units that could not be given back. ls may be nil.
func (ls *Leases) Close() (lost Lost) {
	if ls == nil {
		return lost
	}
	ls.mu.Lock()
	ls.closed = true
	all := make([]*Lease, 0, len(ls.open))
	for le := range ls.open {
		all = append(all, le)
	}
	ls.mu.Unlock()
	ls.close(all, ls.now())
	for ls.underWay.Load() > 0 { // the Timeout of the limiter bounds each of their calls to Redis
		time.Sleep(time.Millisecond)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	lost, ls.lost = ls.lost, lost
	return lost
}

// Open returns how many leases are open.
func (ls *Leases) Open() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.open)
}
