package admin

import (
	"cmp"
	"container/heap"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	topShards = 8               // each has a lock of its own
	perShard  = 64              // how many keys each sketch counts
	topPeriod = 5 * time.Minute // the counts of the present and of the previous period are shown
	maxKey    = 512             // how many bytes of a key are kept; longer keys with the same beginning are counted as one
)

// A top finds the keys that are asked for and denied most often, in bounded memory. Each shard has
// Space-Saving sketches (Metwally, Agrawal and El Abbadi, 2005). A key with more than 1/64 of the counts
// in its shard is always found.
type top struct {
	seed   maphash.Seed
	shards [topShards]topShard
}

// A topShard counts a part of the keys.
type topShard struct {
	sync.Mutex

	number      int64 // the number of the period that now counts
	now, before [sketches]sketch
}

// The things for which keys are counted. Each has a sketch.
const (
	asked = iota
	denied
	sketches
)

// A sketch counts keys. Its heap orders them by counts, the smallest first. The counts in the heap may
// be out of date; add updates them when they matter.
type sketch struct {
	byKey map[string]*counted
	heap  []*counted
}

// A counted is a key with its count. The count may be too high by up to over, which is the count of the
// key that this one replaced.
type counted struct {
	key         string
	count, over int64
	seen        int64 // the count that the heap knows, so that most counts need not change the heap
}

// newTop returns a top that has counted nothing.
func newTop() *top {
	t := &top{seed: maphash.MakeSeed()}
	for i := range t.shards {
		s := &t.shards[i]
		for k := range sketches {
			s.now[k].byKey, s.before[k].byKey = make(map[string]*counted), make(map[string]*counted)
		}
	}
	return t
}

// add counts a key. now is the time since the Watch began.
func (t *top) add(key string, now time.Duration, isDenied bool) {
	if len(key) > maxKey {
		key = key[:maxKey]
	}
	s := &t.shards[maphash.String(t.seed, key)%topShards]
	s.Lock()
	defer s.Unlock()
	s.turn(now)
	s.now[asked].add(key)
	if isDenied {
		s.now[denied].add(key)
	}
}

// turn moves the sketches to the period of now.
func (s *topShard) turn(now time.Duration) {
	number := int64(now / topPeriod)
	if number <= s.number {
		return
	}
	s.now, s.before = s.before, s.now
	for k := range sketches {
		s.now[k].clear()
		if number > s.number+1 {
			s.before[k].clear()
		}
	}
	s.number = number
}

// clear removes all keys.
func (k *sketch) clear() {
	clear(k.byKey)
	clear(k.heap)
	k.heap = k.heap[:0]
}

// add counts a key. If the sketch is full, a new key replaces the key with the smallest count.
func (k *sketch) add(key string) {
	if c := k.byKey[key]; c != nil {
		c.count++
		return
	}
	key = strings.Clone(key) // the key may be part of a large string
	if len(k.heap) < perShard {
		c := &counted{key: key, count: 1, seen: 1}
		heap.Push(k, c)
		k.byKey[key] = c
		return
	}
	least := k.heap[0]
	for ; least.seen != least.count; least = k.heap[0] {
		least.seen = least.count
		heap.Fix(k, 0)
	}
	delete(k.byKey, least.key)
	least.key, least.over = key, least.count
	least.count++
	k.byKey[key] = least
}

// The methods of heap.Interface.

func (k *sketch) Len() int           { return len(k.heap) }
func (k *sketch) Less(i, j int) bool { return k.heap[i].seen < k.heap[j].seen }
func (k *sketch) Pop() any           { return nil } // nothing is popped
func (k *sketch) Swap(i, j int)      { k.heap[i], k.heap[j] = k.heap[j], k.heap[i] }
func (k *sketch) Push(c any)         { k.heap = append(k.heap, c.(*counted)) } //nolint:forcetypeassert // add pushes it

// most returns the n keys with the highest counts of what, in the present and the previous period, and
// the time at which the previous period began.
func (t *top) most(what, n int, now time.Duration) (all []counted, since time.Duration) {
	for i := range t.shards {
		s := &t.shards[i]
		s.Lock()
		s.turn(now)
		latest, before := &s.now[what], &s.before[what]
		for _, c := range latest.heap {
			sum := *c
			if old := before.byKey[c.key]; old != nil {
				sum.count, sum.over = sum.count+old.count, sum.over+old.over
			}
			all = append(all, sum)
		}
		for _, c := range before.heap {
			if latest.byKey[c.key] == nil {
				all = append(all, *c)
			}
		}
		s.Unlock()
	}
	slices.SortFunc(all, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key))
	})
	return all[:min(n, len(all))], max(0, now-now%topPeriod-topPeriod)
}
