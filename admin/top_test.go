package admin

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestSketch adds random keys, some more often than others, and compares the counts of the sketch with exact counts, within the bounds
// that are promised.
func TestSketch(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		k, exact := sketch{byKey: map[string]*counted{}}, map[string]int64{}
		n := int64(1 + random.IntN(5000))
		for range n {
			key := fmt.Sprint(random.IntN(1 + random.IntN(1+random.IntN(1000))))
			exact[key]++
			k.add(key)
		}
		var sum int64
		for key, c := range k.byKey {
			sum += c.count
			if e := exact[key]; key != c.key || c.count < e || c.count-c.over > e || c.over > n/perShard {
				t.Fatalf("seed %d: %s was added %d times, and the sketch says %d to %d times", seed, key, e, c.count-c.over, c.count)
			}
		}
		if sum != n || len(k.byKey) != len(k.heap) || len(k.heap) > perShard {
			t.Fatalf("seed %d: the counts add up to %d, want %d; the map has %d entries and the heap %d, want as many", seed, sum, n, len(k.byKey), len(k.heap))
		}
		for key, e := range exact {
			if e > n/perShard && k.byKey[key] == nil {
				t.Fatalf("seed %d: the sketch has no entry of %s, which was added %d times of %d", seed, key, e, n)
			}
		}
	}
}
