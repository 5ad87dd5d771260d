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

// TestOutageOfManyLimiters checks that an outage takes hardly more CPU time if many limiters share the client, and that
// they return to Redis as soon as one limiter does.
func TestOutageOfManyLimiters(t *testing.T) {
	check.IdleRounds(t, tooBusy, func(t *check.Round) {
		one, many := outageCPU(t, 1), outageCPU(t, 3000)
		t.Logf("the CPU time of an outage is %v with one limiter, and %v with 3,000", one, many)
		if many > 3*one+200*time.Millisecond {
			t.Errorf("an outage with 3,000 limiters took %v of CPU time, and with one limiter %v; want at most three times as much and 200ms", many, one)
		}
	})
}

// outageCPU returns the CPU time of this process while Redis is unavailable to the given number of limiters, one of which
// decides every 5 ms.
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
	check.Eventually(t, "all limiters know that Redis is away", func() bool {
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
		t.Errorf("with %d limiters Redis decides %v after its return, want at most 200ms", limiters, took)
	}
	return used
}

// cpu returns the CPU time that this process has used.
func cpu(t *check.Round) time.Duration {
	var r syscall.Rusage
	check.Need(t, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
