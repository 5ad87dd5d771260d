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

// Events are called when something happens to a lease.
type Events struct {
	Opened func(units int64)
	Closed func(units, spent int64)
}

// Leases are those of a limiter.
type Leases struct {
	d      time.Duration
	hot    *hotKeys
	now    func() Instant
	take   TakeFunc
	settle func([]*Closed) (failed []*Closed) // it waits for the replies
	events Events

	onlyCallers bool // see Config

	underWay atomic.Int32 // exchanges, and leases that are being closed and settled: Close waits for them

	mu      sync.Mutex
	open    map[*Lease]struct{}
	running bool // the goroutine that closes them
	closed  bool // no more are taken
	lost    Lost // since it is closed
}

// A TakeFunc has Redis hold units of a key for as long as a lease lasts.
type TakeFunc func(ctx context.Context, by *limits.Set, key string, units int64) Grant

// A Grant is what Redis says to that.
type Grant struct {
	Answers   []algorithm.Answer
	Handles   []algorithm.Handle // nil if the units are not held
	Remaining int64              // beside them
}

// A Config says how the leases of a limiter work. Every field but Duration has a default, which
// services use; tests set the others to run several processes with clocks of their own.
type Config struct {
	Duration time.Duration  // of a lease
	Clock    func() Instant // nil means the clocks of this process

	// OnlyCallers means that nothing runs in the background: a lease is closed when a caller notices
	// that it is over, or calls CloseOld, and no caller waits for another one's exchange.
	OnlyCallers bool

	HotAsks int64 // how often a key is asked for before it gets a lease; 0 means HotAsks
	Share   int64 // a lease takes one part in Share of what remains; 0 means share
}

// New returns the Leases of a limiter. settle has Redis settle what was closed, and returns what it
// could not.
func New(c Config, take TakeFunc, settle func([]*Closed) (failed []*Closed), events Events) *Leases {
	if c.Clock == nil {
		c.Clock = processClock()
	}
	hot := newHotKeys(c.Duration)
	hot.asks, hot.share = cmp.Or(c.HotAsks, HotAsks), cmp.Or(c.Share, share)
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
		return Instant{time.Duration(now.UnixNano()), now.Sub(begun), now}
	}
}

// Now returns the instant.
func (ls *Leases) Now() Instant { return ls.now() }

// A Lookup is what is known of the key of a request.
type Lookup struct {
	Hot *HotKey // nil unless the key is hot

	key  string
	by   *limits.Set
	hash uint64
	set  *hotSet
}

// Look looks a key up.
func (ls *Leases) Look(key string, by *limits.Set) Lookup {
	hash := ls.hot.hash(key)
	set := ls.hot.set(hash)
	return Lookup{Hot: set.find(key, by), key: key, by: by, hash: hash, set: set}
}

// Count counts a request for a key that was not hot. It returns the HotKey that it has become, or
// nil.
func (ls *Leases) Count(l Lookup, now Instant) *HotKey {
	return ls.hot.count(l.set, l.hash, l.key, l.by, now.Mono)
}

// Heard notes what a decision by Redis says of a hot key: n units were admitted, and so many
// remain.
func (ls *Leases) Heard(h *HotKey, n, remaining int64) {
	h.asked(ls.now().Mono, ls.d, 1, n)
	h.heard(remaining)
}

// Lease returns the last lease of the key, which may have ended, or nil. h may be nil.
func (h *HotKey) Lease() *Lease {
	if h == nil {
		return nil
	}
	return h.lease.Load()
}

// A Closed is a lease that is to be settled: Held units of it are held, of which Spent were spent.
type Closed struct {
	*Lease

	Limits      *limits.Set
	Key         string
	Held, Spent int64
}

// closeLease closes a lease: nothing is taken from it any more. It returns what is to be settled,
// or nil.
func (ls *Leases) closeLease(le *Lease, now Instant) *Closed {
	state := le.state.Swap(leaseClosed)
	if state&leaseClosed != 0 {
		return nil
	}
	ls.mu.Lock()
	delete(ls.open, le)
	ls.mu.Unlock()
	held, left := le.units-reservedIn(state), leftIn(state)
	ls.events.Closed(le.units, le.units-left)
	le.hot.asked(now.Mono, ls.d, asksIn(state), le.units-left)
	if held == 0 {
		return nil
	}
	le.hot.settling.Add(1)
	return &Closed{Lease: le, Limits: le.hot.limits, Key: le.hot.key, Held: held, Spent: held - left}
}

// An exchange settles the last lease of a key, and takes another.
type exchange struct {
	room atomic.Int64  // units that are asked for, less those that requests wait for
	done chan struct{} // closed when it has ended
}

// Exchange closes the lease that was seen of a hot key, and takes another, beside the requests that
// wait for it. It does nothing if there is nothing to exchange, or another request does it. If
// another lease would be too small for the request for n units that calls it, the last is settled
// only.
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
	if n > units {
		units = 0
	}
	x.room.Store(units)
	end := func() { // also where a hook of the client ends the goroutine
		h.exchange.Store(nil)
		close(x.done)
	}
	switch {
	case units > 0:
		ls.beside(func() {
			defer end()
			ls.takeLease(context.WithoutCancel(ctx), h, units)
		})
		if old != nil { // as the next is for an eighth of what remains, it need not wait for that
			ls.beside(func() { ls.settleClosed(old) })
		}
	case old != nil:
		if old.Spent < old.Held {
			x.room.Store(maxLeased) // all wait for what becomes free
		}
		ls.beside(func() {
			defer end()
			ls.settleClosed(old)
		})
	default:
		end()
	}
}

// beside calls f beside the requests. Close waits for it.
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

// change closes the lease that was seen, unless there is another by now. It returns what is to be
// settled, or nil, and how many units are to be leased.
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

// Awaited returns a channel that is closed when the exchange under way for h ends; nil if there is
// none, or others wait for all of its units.
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

// takeLease takes a lease of a hot key, if Redis has so many units. One that is granted too late is
// given back at once.
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

func (ls *Leases) isClosed() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.closed
}

// add has the lease closed when its time comes. It reports false if no more leases are taken.
func (ls *Leases) add(le *Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ls.open[le] = struct{}{}
	if !ls.running && !ls.onlyCallers {
		ls.running = true
		go ls.run()
	}
	return true
}

// run closes leases that no request has closed, for as long as there are any.
func (ls *Leases) run() {
	ticker := time.NewTicker(ls.d / 16)
	defer ticker.Stop()
	for range ticker.C {
		go ls.CloseOld() // Redis may be slow, and other leases end meanwhile
		ls.mu.Lock()
		ls.running = len(ls.open) > 0
		running := ls.running
		ls.mu.Unlock()
		if !running {
			return
		}
	}
}

// CloseOld closes leases before their time, early enough for Redis to settle them before what is
// held has expired: then it would be charged whole.
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

// margin is how long before its time the lease is closed: a fourth of it, or more where Redis took
// long to answer.
func (le *Lease) margin() time.Duration {
	return min(max(le.lasts/4, 3*le.granted.Since(le.sent)), le.lasts/2)
}

// close closes leases, and settles them.
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
}

// settleClosed settles leases, and notes what could not be given back.
func (ls *Leases) settleClosed(all ...*Closed) {
	failed := ls.settle(all)
	for _, c := range all {
		c.hot.settling.Add(-1)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, c := range failed {
		if ls.closed && c.Held > c.Spent {
			ls.lost.Keys++
			ls.lost.Units += c.Held - c.Spent
		}
	}
}

// Drop closes the leases of a key, and waits until all that were closed are settled: what is
// settled after a Reset is charged.
func (ls *Leases) Drop(key string) {
	if ls == nil {
		return
	}
	var all []*Lease
	keys := ls.hot.all(key)
	for _, h := range keys {
		if le := h.lease.Load(); le != nil {
			all = append(all, le)
		}
	}
	ls.close(all, ls.now())
	for _, h := range keys {
		for !ls.onlyCallers && h.settling.Load() > 0 { // each takes as long as two calls to Redis at most
			time.Sleep(time.Millisecond)
		}
	}
}

// Lost is what Redis charges though it was not spent.
type Lost struct{ Keys, Units int64 }

// Close closes all leases, and waits until they are settled. No more are taken. It returns what
// could not be given back.
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
	for ls.underWay.Load() > 0 { // each takes as long as a call to Redis at most
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
