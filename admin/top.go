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
	topShards = 8               // each under a lock of its own
	perShard  = 64              // keys that each counts
	topPeriod = 5 * time.Minute // this one and the one before are shown
	maxKey    = 512             // bytes that are kept of a key: one that begins alike is taken for the same
)

// A top finds the keys that are asked for and denied most often, in bounded memory: by Space-Saving
// sketches (Metwally, Agrawal and El Abbadi, 2005) in each shard. A key that has more than a 64th
// of what is counted there is among them.
type top struct {
	seed   maphash.Seed
	shards [topShards]topShard
}

type topShard struct {
	sync.Mutex

	number      int64 // that of the period of now
	now, before [sketches]sketch
}

// What keys are counted for.
const (
	asked = iota
	denied
	sketches
)

// A sketch is a heap by the counts that were last looked at, the smallest first.
type sketch struct {
	byKey map[string]*counted
	heap  []*counted
}

// A counted is a key with how often it was counted. That may be too many by over: the count of the
// key that it replaced.
type counted struct {
	key         string
	count, over int64
	seen        int64 // its count when the heap looked at it: most counts then take no time there
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

// add counts a key at an instant, since the Watch began.
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

// turn has the sketches be those of an instant.
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

func (k *sketch) add(key string) {
	if c := k.byKey[key]; c != nil {
		c.count++
		return
	}
	key = strings.Clone(key) // it may be a part of something large
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

// most returns the keys with the n highest counts of what, of this period and the one before, and
// when that began.
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
