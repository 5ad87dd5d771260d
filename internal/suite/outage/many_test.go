//go:build unix

package outage

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// An outage takes hardly more of the CPU where many limiters share the client, and they return as soon.
func TestOutageOfManyLimiters(t *testing.T) {
	check.IdleRounds(t, tooBusy, func(t *check.Round) {
		one, many := outageCPU(t, 1), outageCPU(t, 3000)
		t.Logf("CPU of an outage with one limiter: %v, with 3,000: %v", one, many)
		if many > 3*one+200*time.Millisecond {
			t.Errorf("an outage with 3,000 limiters took %v of CPU, with one %v", many, one)
		}
	})
}

// outageCPU returns how much of the CPU this process takes while Redis is unavailable to the given number
// of limiters, each of which decides every 5 ms.
func outageCPU(t *check.Round, limiters int) time.Duration {
	const lasts = 2 * time.Second
	e := newEnv(t, setup{})
	all := make([]*core.Limiter, limiters)
	watches := make([]*watcher, limiters)
	for i := range all {
		all[i], watches[i] = watched(e.rdb, fmt.Sprint("many", i), many(), core.FailClosed())
	}
	awaitRedis(t, all[0], "k")
	e.proxy.Refuse()
	check.Eventually(t, "all know that it is down", func() bool {
		return !byRedis(t, all[0]) && watches[limiters-1].count(core.EventFallbackOn) == 1
	})
	before := cpu(t)
	for begun, i := time.Now(), 0; time.Since(begun) < lasts; time.Sleep(5 * time.Millisecond) {
		_ = byRedis(t, all[i*7%limiters])
		i++
	}
	used := cpu(t) - before
	e.proxy.Pass()
	begun := time.Now()
	check.Eventually(t, "Redis decides", func() bool { return byRedis(t, all[0]) })
	if took := time.Since(begun); took > 200*time.Millisecond {
		t.Errorf("%d limiters: Redis decides after %v", limiters, took)
	}
	return used
}

func cpu(t *check.Round) time.Duration {
	var r syscall.Rusage
	check.Need(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
