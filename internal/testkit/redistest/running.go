package redistest

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

const addrEnv = "REDISLIMIT_REDIS_ADDR"

// running returns the server at addr, and empties it when the test ends. It refuses a server that has keys, which may
// belong to another user, or to a test that runs at the same time.
func running(tb testing.TB, addr string) *Instance {
	tb.Helper()
	client := redisclient.New(tb, &redis.Options{Addr: addr})
	switch n, err := client.DBSize(tb.Context()).Result(); {
	case err != nil:
		tb.Fatalf("redistest: %s=%s: %v", addrEnv, addr, err)
	case n > 0:
		tb.Fatalf("redistest: the server at %s=%s has %d keys, and tests delete all keys: name an empty server, and run one test at a time", addrEnv, addr, n)
	}
	tb.Cleanup(func() { // tb.Context has ended
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			tb.Errorf("redistest: %s: %v", addr, err)
		}
	})
	return &Instance{Addr: addr, tb: tb}
}

// needOwn skips the test if the process of the server is not ours.
func (i *Instance) needOwn() {
	i.tb.Helper()
	if len(i.args) == 0 {
		skipRunning(i.tb)
	}
}

// skipRunning skips a test that starts servers, because one server is given for all tests.
func skipRunning(tb testing.TB) {
	tb.Helper()
	tb.Skipf("needs a server of its own, but %s=%s is one for all tests", addrEnv, os.Getenv(addrEnv))
}
