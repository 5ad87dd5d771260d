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
	topShards = 8               // each with a lock of its own
	perShard  = 64              // how many keys each sketch counts
	topPeriod = 5 * time.Minute // the present period and the one before are shown
	maxKey    = 512             // how many bytes of a key are kept; longer keys with the same beginning count as one
)

// A top finds the keys that are requested and denied most often, in bounded memory. Each shard uses
// Space-Saving sketches (Metwally, Agrawal and El Abbadi, 2005). A key with more than 1/64 of the
// requests in its shard is always found.
type top struct {
	seed   maphash.Seed
	shards [topShards]topShard
}

type topShard struct {
	sync.Mutex

	number      int64 // the number of the present period
	now, before [sketches]sketch
}

// The reasons for which keys are counted.
const (
	requested = iota
	denied
	sketches
)

// A sketch is a heap of keys, ordered by counted.seen, with the smallest first.
type sketch struct {
	byKey map[string]*counted
	heap  []*counted
}

// A counted is a key with its count in one period. The count may be too high, but by no more than over, which
// is the count of the key that this key has replaced.
type counted struct {
	key         string
	count, over int64
	// seen is the count at the time when the heap last looked at the key. The heap is ordered by it, so that
	// most increments need not change the heap.
	seen int64
}

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

// add counts a request for key at now, the time since the Watch began.
func (t *top) add(key string, now time.Duration, isDenied bool) {
	if len(key) > maxKey {
		key = key[:maxKey]
	}
	s := &t.shards[maphash.String(t.seed, key)%topShards]
	s.Lock()
	defer s.Unlock()
	s.turn(now)
	s.now[requested].add(key)
	if isDenied {
		s.now[denied].add(key)
	}
}

// turn begins a new period if the present one is over at now, the time since the Watch began. s.now is
// then empty, and s.before has the counts of the period before the new one. The caller holds the lock of s.
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

func (k *sketch) clear() {
	clear(k.byKey)
	clear(k.heap)
	k.heap = k.heap[:0]
}

// add counts a request for key. If the sketch is full, a new key replaces the key with the smallest count, and
// inherits its count.
func (k *sketch) add(key string) {
	if c := k.byKey[key]; c != nil {
		c.count++
		return
	}
	key = strings.Clone(key) // it may be a part of a large string
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

// The following methods implement heap.Interface.

func (k *sketch) Len() int           { return len(k.heap) }
func (k *sketch) Less(i, j int) bool { return k.heap[i].seen < k.heap[j].seen }
func (k *sketch) Pop() any           { return nil } // never called: nothing is removed
func (k *sketch) Swap(i, j int)      { k.heap[i], k.heap[j] = k.heap[j], k.heap[i] }
func (k *sketch) Push(c any)         { k.heap = append(k.heap, c.(*counted)) } //nolint:forcetypeassert // add pushes it

// most returns the n keys with the highest counts in the present period and the one before, and when the
// earlier of the two began.
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
