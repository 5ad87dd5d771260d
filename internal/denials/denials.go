// Package denials remembers denials, so that a process can repeat them without asking Redis.
package denials

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/key"
	"github.com/redislimit/redislimit/internal/limits"
)

// MaxStale is the longest time for which a denial is repeated without asking Redis.
const MaxStale = time.Second

// A denial survives one collision in its slot for each time it was repeated, and maxSurvives at
// most.
const maxSurvives = 16

// A Cache remembers denials, each in the slot that the hash of its key chooses. A flood of keys that
// are denied once does not evict a key that is denied again and again. Denials of a cost above a
// capacity are remembered beside those of smaller costs. Reading takes no lock. A nil Cache remembers
// nothing.
type Cache struct {
	size  int
	bans  bool // a denial may ban its key
	seed  maphash.Seed
	slots atomic.Pointer[[]atomic.Pointer[Denial]] // made with the first denial

	mu          sync.Mutex // held while a slot is changed
	generations [generations]atomic.Uint64
}

// A generation is how often Forget was called for keys of some hashes: put drops a denial from
// before the last call.
const generations = 64

// A Denial is a reply of Redis, with the instants at which its call was sent and answered. Redis
// decided between the two. The time for which the denial is repeated starts when the call was sent,
// so that it is never repeated for too long. Its RetryAfter and ResetAfter start when the answer came,
// so that no client comes back too early.
type Denial struct {
	reply    decision.Reply // for the limits of its Set alone: other numbers may admit
	key      string
	cost     int64 // the smallest cost that is denied
	exceeded int   // how many capacities that cost exceeds
	sent     time.Time
	received time.Time
	lasts    time.Duration // it is repeated until sent + lasts
	survives atomic.Int32  // how many collisions in its slot, up to maxSurvives
}

// A Stamp is taken before a call to Redis, so that its denial can be remembered afterwards.
type Stamp struct {
	generation uint64
	sent       time.Time
}

// New returns a Cache with size slots, or nil if size is 0. bans says that a denial may ban its key.
func New(size int, bans bool) *Cache {
	if size == 0 {
		return nil
	}
	return &Cache{size: size, bans: bans, seed: maphash.MakeSeed()}
}

// Repeat fills r with the remembered denial of call. It reports false if there is none.
func (c *Cache) Repeat(call *decision.Call, r *decision.Reply) bool {
	if c == nil || !call.Spends() {
		return false
	}
	slots := c.slots.Load()
	if slots == nil {
		return false
	}
	k := key.Local(call.Key)
	exceeded := call.Set.Exceeded(call.N)
	d := c.slot(slots, k, exceeded).Load()
	if d == nil || d.key != k || d.reply.Set != call.Set || d.exceeded != exceeded || call.N < d.cost {
		return false
	}
	now := time.Now()
	if age := now.Sub(d.sent); age < 0 || age >= d.lasts {
		return false
	}
	if d.survives.Load() < maxSurvives {
		d.survives.Add(1)
	}
	r.Set, r.N, r.Answers, r.Ban, r.Source = d.reply.Set, d.reply.N, d.reply.Answers, d.reply.Ban, d.reply.Source
	r.Age = now.Sub(d.received)
	return true
}

// slot returns the slot of k, in the form of key.Local, for costs that exceed so many capacities.
func (c *Cache) slot(slots *[]atomic.Pointer[Denial], k string, exceeded int) *atomic.Pointer[Denial] {
	return &(*slots)[(maphash.String(c.seed, k)+uint64(exceeded))%uint64(len(*slots))]
}

// generation returns that of a key.
func (c *Cache) generation(k string) *atomic.Uint64 {
	return &c.generations[maphash.String(c.seed, k)%generations]
}

// Learn remembers r, the reply of Redis to call, if it is a denial that may be repeated. stamp is what
// Stamp returned before the call.
func (c *Cache) Learn(call *decision.Call, r *decision.Reply, stamp Stamp) {
	switch {
	case c == nil || !call.Spends() || r.Allowed:
	case r.Ban.Until > 0:
		c.put(call, r, 1, time.Duration(r.Ban.Until-r.Ban.At)*time.Microsecond, stamp)
	case c.bans && call.Set.Exceeded(call.N) == 0:
		// The next denial may ban the key for longer, and only Redis can do that.
	default:
		c.put(call, r, call.N, call.Set.DeniedFor(r.Answers, call.N), stamp)
	}
}

// put remembers r, a denial of call by Redis, for lasts at most. It will be repeated for any cost that
// is not below the given one and exceeds as many capacities. If a key was forgotten since the stamp
// was taken, which may have been this one, put remembers nothing.
func (c *Cache) put(call *decision.Call, r *decision.Reply, cost int64, lasts time.Duration, stamp Stamp) {
	if lasts <= 0 {
		return
	}
	by := call.Set
	d := &Denial{
		key: key.Local(call.Key), cost: cost, exceeded: by.Exceeded(cost),
		sent: stamp.sent, received: time.Now(), lasts: min(lasts, MaxStale),
	}
	r.CopyTo(&d.reply)
	d.reply.Source, d.reply.Ban.Began = decision.DenyCache, false // a ban begins once
	if d.exceeded == len(by.Capacities) {
		d.cost = slices.Max(by.Capacities) + 1 // no limit has more to say about a higher cost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation(call.Key).Load() != stamp.generation {
		return
	}
	slots := c.slots.Load()
	if slots == nil {
		made := make([]atomic.Pointer[Denial], c.size)
		slots = &made
		c.slots.Store(slots)
	}
	slot := c.slot(slots, d.key, d.exceeded)
	old := slot.Load()
	switch {
	case old == nil:
	case old.key == d.key:
		d.survives.Store(old.survives.Load())
	case old.survives.Load() > 0 && time.Since(old.sent) < old.lasts:
		old.survives.Add(-1)
		return
	}
	slot.Store(d)
}

// Forget drops the denials of k by limits, and those that calls in flight will bring.
func (c *Cache) Forget(k string, by *limits.Set) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation(k).Add(1)
	slots := c.slots.Load()
	if slots == nil {
		return
	}
	k = key.Local(k)
	for exceeded := range len(by.Capacities) + 1 {
		if slot := c.slot(slots, k, exceeded); slot.Load() != nil && slot.Load().key == k {
			slot.Store(nil)
		}
	}
}

// Stamp returns what Learn needs to know of a call about k that is about to be sent.
func (c *Cache) Stamp(k string) Stamp {
	if c == nil {
		return Stamp{}
	}
	return Stamp{c.generation(k).Load(), time.Now()}
}
