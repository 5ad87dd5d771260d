package outage

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// soakEnv is the environment variable with the duration of the soak test, such as "30s".
const soakEnv = "REDISLIMIT_SOAK"

// TestSoak makes calls at full speed through random faults. The admitted calls stay within what each mode allows, and
// neither goroutines nor memory grow.
func TestSoak(t *testing.T) {
	lasts := 5 * time.Second
	if s := os.Getenv(soakEnv); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	base := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) { soak(t, lasts) })
	check.NoGoroutineLeft(t, base)
}

func soak(t *testing.T, lasts time.Duration) {
	const keys, perKey, callers = 50, 400, 4
	e := newEnv(t, setup{})
	var names []string
	for i := range keys {
		names = append(names, fmt.Sprint("k", i))
	}
	end := make(chan struct{})
	var running sync.WaitGroup
	var loads []*load
	for i, m := range modes() {
		l := newLoad(m, e.rdb, fmt.Sprint("soak", i), perKey, 100*time.Millisecond, names...)
		loads = append(loads, l)
		l.run(t, &running, callers, 200*time.Microsecond, end) // without a pause the callers would leave the proxy no processor
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	faults := []func(){
		func() { e.proxy.Silence() },
		func() { e.proxy.Latency(60 * time.Millisecond) },
		func() { e.proxy.HalfReply() },
		func() { e.proxy.HalfReply("EVALSHA") },
		func() { e.proxy.DropReply("EVALSHA") },
		func() { e.proxy.Reset() },
		func() { e.proxy.Refuse() },
		func() { e.proxy.Blackhole() },
		func() { e.server.Pause(); time.Sleep(100 * time.Millisecond); e.server.Resume() },
		func() { e.do(t, "SCRIPT FLUSH") },
		func() {
			e.do(t, "CONFIG SET maxmemory 1")
			time.Sleep(50 * time.Millisecond)
			e.do(t, "CONFIG SET maxmemory 0")
		},
	}
	heap := uint64(0)
	for start := time.Now(); time.Since(start) < lasts; {
		faults[random.IntN(len(faults))]()
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		e.proxy.Pass()
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond) // often long enough for the breaker to close
		if heap == 0 && time.Since(start) > lasts/3 {
			heap = inUse() // by now all keys are known, and the pool is full
		}
	}
	close(end)
	running.Wait()
	if grown := int64(inUse()) - int64(heap); grown > 8<<20 {
		t.Errorf("the heap grew by %d bytes, want at most 8 MiB", grown)
	}
	for i, l := range loads {
		awaitRedis(t, l.limiter, "k0")
		l.check(t, 0)
		for _, key := range names {
			auditor := core.MustNew(e.admin, fmt.Sprint("soak", i), core.FixedWindow(core.PerHour(perKey)), core.Timeout(time.Minute))
			res, err := auditor.Peek(t.Context(), key)
			if admitted := l.admitted[key][core.SourceRedis].Load(); err != nil || res.Limit-res.Remaining < admitted {
				t.Errorf("%s, key %q: Redis admitted %d calls and has %d units charged, %v; want at least as many charged", l.name, key, admitted, res.Limit-res.Remaining, err)
			}
		}
	}
	if expiring(t, e.admin) == 0 {
		t.Error("Redis has no keys after the test, want some")
	}
}

// inUse returns the bytes of the heap that are in use after a garbage collection.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
