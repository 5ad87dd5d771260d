// Package denials remembers denials, so that this process can repeat a denial without calling Redis.
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

// MaxStale is the longest time for which a denial is repeated.
const MaxStale = time.Second

// maxSurvives bounds Denial.survives, the number of collisions in its slot that a denial will survive.
// Each repetition of the denial raises the number by one.
const maxSurvives = 16

// A Cache remembers denials in a fixed number of slots. The hash of a key chooses the slot. A denial that
// was repeated survives collisions, so that a flood of keys that are denied once does not evict a key that
// is denied again and again. Denials of a cost above a limit's capacity are kept apart from the key's
// denials of smaller costs.
//
// A lookup takes no lock. A nil Cache remembers nothing.
type Cache struct {
	size  int
	bans  bool // see New
	seed  maphash.Seed
	slots atomic.Pointer[[]atomic.Pointer[Denial]] // allocated when the first denial is remembered

	mu sync.Mutex // held while a slot is changed
	// generations counts the calls of Forget. The keys are divided into groups by their hash, and each
	// group has a counter. A denial is not remembered if its key's counter has changed since the denial's
	// Stamp was taken.
	generations [generations]atomic.Uint64
}

// generations is how many counters of Forget there are. If keys share a counter, and one of them is
// forgotten, the denials of the others that are in flight are not remembered either.
const generations = 64

// A Denial is a reply of Redis that denies. The field sent is an instant before the call was sent, and
// received an instant after the reply came, so Redis decided at some time between the two. The time for
// which the denial is repeated starts at sent, so that a denial is never repeated for too long. The
// RetryAfter and ResetAfter of the reply start at received, so that no client comes back too early.
type Denial struct {
	reply    decision.Reply // repeated only for the same Set: other numbers may admit
	key      string
	cost     int64 // the smallest cost that this denial answers
	exceeded int   // how many capacities that cost exceeds
	sent     time.Time
	received time.Time
	lasts    time.Duration // the denial is repeated until sent + lasts
	survives atomic.Int32  // how many more collisions the denial survives, at most maxSurvives
}

// A Stamp describes the moment before a call to Redis. Learn needs it to remember the denial of that
// call.
type Stamp struct {
	generation uint64
	sent       time.Time
}

// New returns a Cache with size slots, or nil if size is 0. bans says that denials may ban their key. In
// that case, the Cache remembers a denial only while the key is banned, or if the cost exceeds a
// capacity. After any other denial, the next one may ban the key, or ban it for longer, and only Redis
// can do that.
func New(size int, bans bool) *Cache {
	if size == 0 {
		return nil
	}
	return &Cache{size: size, bans: bans, seed: maphash.MakeSeed()}
}

// Repeat fills r with the remembered denial of call. It returns false if no remembered denial answers call.
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

// slot returns the slot for the denials of k whose costs exceed the given number of capacities. k is in
// the form of key.Local.
func (c *Cache) slot(slots *[]atomic.Pointer[Denial], k string, exceeded int) *atomic.Pointer[Denial] {
	return &(*slots)[(maphash.String(c.seed, k)+uint64(exceeded))%uint64(len(*slots))]
}

// generation returns the counter that Forget increments for k.
func (c *Cache) generation(k string) *atomic.Uint64 {
	return &c.generations[maphash.String(c.seed, k)%generations]
}

// Learn remembers r, the reply of Redis to call, if r is a denial that may be repeated. stamp is the result
// of Stamp before the call.
func (c *Cache) Learn(call *decision.Call, r *decision.Reply, stamp Stamp) {
	switch {
	case c == nil || !call.Spends() || r.Allowed:
	case r.Ban.Until > 0:
		c.put(call, r, 1, time.Duration(r.Ban.Until-r.Ban.At)*time.Microsecond, stamp)
	case c.bans && call.Set.Exceeded(call.N) == 0:
		// The next denial may ban the key, or ban it for longer, and only Redis can do that.
	default:
		c.put(call, r, call.N, call.Set.DeniedFor(r.Answers, call.N), stamp)
	}
}

// put remembers r, the denial of call by Redis, for the time lasts or MaxStale, whichever is shorter.
// The denial will be repeated for any cost that is at least the given cost and exceeds the same number
// of capacities. put remembers nothing if lasts is not positive, if the key may have been forgotten since
// the stamp was taken, or if the slot has a denial of another key that survives the collision.
func (c *Cache) put(call *decision.Call, r *decision.Reply, cost int64, lasts time.Duration, stamp Stamp) {
	if lasts <= 0 {
		return
	}
	set := call.Set
	d := &Denial{
		key: key.Local(call.Key), cost: cost, exceeded: set.Exceeded(cost),
		sent: stamp.sent, received: time.Now(), lasts: min(lasts, MaxStale),
	}
	r.CopyTo(&d.reply)
	d.reply.Source, d.reply.Ban.Began = decision.DenyCache, false // a repeated denial does not begin a ban
	if d.exceeded == len(set.Capacities) {
		d.cost = slices.Max(set.Capacities) + 1 // beyond all capacities, every cost is denied alike
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

// Forget drops the remembered denials of k by the limits of set, and perhaps some by other limits. Denials
// of k by calls that are in flight will not be remembered either.
func (c *Cache) Forget(k string, set *limits.Set) {
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
	for exceeded := range len(set.Capacities) + 1 {
		if slot := c.slot(slots, k, exceeded); slot.Load() != nil && slot.Load().key == k {
			slot.Store(nil)
		}
	}
}

// Stamp returns the Stamp of a call about k. It must be called before the call is sent.
func (c *Cache) Stamp(k string) Stamp {
	if c == nil {
		return Stamp{}
	}
	return Stamp{c.generation(k).Load(), time.Now()}
}
