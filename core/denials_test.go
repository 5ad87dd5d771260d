package core

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/denials"
)

// TestDenyCacheAllocates repeats a remembered denial: that takes no allocation, and
// no command.
func TestDenyCacheAllocates(t *testing.T) {
	client := fakeClient(func(redis.Cmder) error {
		t.Error("Redis was asked")
		return errors.ErrUnsupported
	})
	lim := MustNew(client, "api", TokenBucket(PerHour(1)))
	for _, key := range []string{"ip:192.0.2.1", "a key of other characters: ü"} {
		denied := Result{Limit: 1, RetryAfter: time.Hour, Source: SourceRedis}
		lim.family.denials.Put(denials.Request{Key: key, N: 1, Limits: lim.by}, denied, time.Hour, lim.family.denials.Stamp(key, time.Time{}))
		got := testing.AllocsPerRun(100, func() {
			if res, err := lim.Allow(t.Context(), key); err != nil || res.Allowed || res.Source != SourceDenyCache {
				t.Error(res, err)
			}
		})
		if got != 0 {
			t.Errorf("%v allocations, want none", got)
		}
	}
}
