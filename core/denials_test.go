package core

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
)

// TestDenyCacheAllocates checks that repeating a denial from the deny cache makes no allocation and sends no command.
func TestDenyCacheAllocates(t *testing.T) {
	client := fakeClient(func(redis.Cmder) error {
		t.Error("a command was sent to Redis, want none")
		return errors.ErrUnsupported
	})
	lim := MustNew(client, "api", TokenBucket(PerHour(1)))
	for _, key := range []string{"ip:192.0.2.1", "a key of other characters: ü"} {
		c := lim.newRequest(key, 1, algorithm.OpCharge).call
		denied := decision.Reply{Set: lim.set, N: 1, Answers: make([]algorithm.Answer, 1), Source: decision.Redis}
		denied.Answers[0].A = time.Now().Add(time.Hour).UnixMicro() // the time at which the bucket is full again
		lim.family.denials.Learn(&c, &denied, lim.family.denials.Stamp(key))
		got := testing.AllocsPerRun(100, func() {
			if res, err := lim.Allow(t.Context(), key); err != nil || res.Allowed || res.Source != SourceDenyCache {
				t.Errorf("got %+v, %v; want a denial by the deny cache", res, err)
			}
		})
		if got != 0 {
			t.Errorf("a denial makes %v allocations, want none", got)
		}
	}
}
