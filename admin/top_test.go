package admin

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestSketch adds random keys, some of them often, and compares the sketch with exact counts.
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
				t.Fatalf("seed %d: %s was added %d times, and counted %d to %d times", seed, key, e, c.count-c.over, c.count)
			}
		}
		if sum != n || len(k.byKey) != len(k.heap) || len(k.heap) > perShard {
			t.Fatalf("seed %d: %d counted of %d, in %d and %d entries", seed, sum, n, len(k.byKey), len(k.heap))
		}
		for key, e := range exact {
			if e > n/perShard && k.byKey[key] == nil {
				t.Fatalf("seed %d: %s, which was added %d times of %d, is not there", seed, key, e, n)
			}
		}
	}
}
