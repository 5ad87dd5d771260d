package outage

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// Level: a quiet service with several limiters in a row, one request a second. All limiters over a client share what is known of
// its server: an outage costs one slow request in all, and is one log line, and so is its end.
func TestStackedLimiters(t *testing.T) {
	t.Parallel()
	check.IdleRounds(t, func(t *check.Round) { stacked(t, 3) })
}

func stacked(t *check.Round, n int) {
	const requests, timeout = 3, 500 * time.Millisecond
	e := newEnv(t, setup{})
	limiters, watches := make([]*core.Limiter, n), make([]*watcher, n)
	for i := range limiters {
		limiters[i], watches[i] = limiter(e.rdb, fmt.Sprint("stacked", i), core.Timeout(timeout))
		awaitRedis(t, limiters[i], "k")
	}
	e.proxy.Silence()
	slow := 0
	for range requests {
		start := time.Now()
		for _, l := range limiters {
			if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceFallback {
				t.Errorf("during the outage: %+v, %v", res, err)
			}
		}
		if took := time.Since(start); took > timeout/2 {
			slow++
			t.Logf("%d limiters with a timeout of %v: a request took %v", n, timeout, took)
		}
		time.Sleep(time.Second)
	}
	if slow != 1 {
		t.Errorf("%d of %d requests waited for Redis, want one", slow, requests)
	}
	e.proxy.Pass()
	lines, outages := map[slog.Level]int{}, 0
	for i, l := range limiters {
		awaitRedis(t, l, "k")
		w := watches[i]
		if on, off := w.count(core.EventFallbackOn), w.count(core.EventFallbackOff); on != 1 || off != 1 {
			t.Errorf("limiter %d: the fallback went on %d times and off %d times, want once", i, on, off)
		}
		outages += w.count(core.EventOutage)
		for level, n := range w.logged() {
			lines[level] += n
		}
	}
	if lines[slog.LevelWarn] != 1 || lines[slog.LevelInfo] != 1 || len(lines) > 2 {
		t.Errorf("log lines of all limiters: %v, want one when Redis went and one when it was back", lines)
	}
	check.Eventually(t, "the probes have left nothing in Redis", func() bool {
		keys, err := e.admin.Keys(t.Context(), "*probe*").Result()
		return err == nil && len(keys) == 0
	})
	t.Logf("%d limiters: %d slow requests, %d failed calls, log lines %v", n, slow, outages, lines)
}
