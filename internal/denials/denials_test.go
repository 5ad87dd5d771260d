package denials

import (
	"fmt"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/limits"
)

// TestForget forgets a key while denials are in flight. The denial of that key is not remembered,
// because Redis may have decided before the key was forgotten. The denial of another key is remembered:
// otherwise, a busy process would remember hardly any denials.
func TestForget(t *testing.T) {
	t.Parallel()
	set := limits.New("x", []limits.Config{{Kind: algorithm.FixedWindow, Numbers: algorithm.Numbers{Count: 9, Period: 1e6}}})
	c := New(1000, false)
	other := "other"
	for i := 0; i < 1000 && c.generation(other) == c.generation("k"); i++ { // some keys share a counter
		other = fmt.Sprint(i)
	}
	before := map[string]Stamp{"k": c.Stamp("k"), other: c.Stamp(other)}
	c.Forget("k", set)
	for key, stamp := range before {
		call := &decision.Call{Set: set, Key: key, N: 1, Op: algorithm.OpCharge}
		denied := &decision.Reply{Set: set, N: 1, Answers: make([]algorithm.Answer, 1)}
		c.put(call, denied, 1, time.Minute, stamp)
		if repeated := c.Repeat(call, denied); repeated != (key == other) {
			t.Errorf("%q: remembered %v", key, repeated)
		}
	}
}
