package faultproxy

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Every fault in any order, under load: nothing is stuck, nothing races, each success ran, and nothing stays behind.
func TestSwitchUnderLoad(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("load", func(t *testing.T) {
		p, _, direct := setup(t)
		faults := []func(){
			p.Pass, func() { p.Latency(3 * time.Millisecond) }, p.Silence, p.Blackhole, func() { p.HalfReply() },
			func() { p.HalfReply("incr") }, func() { p.DropReply() }, func() { p.DropReply("incr") }, p.Reset, p.Refuse,
		}
		c := redis.NewClient(&redis.Options{
			Addr: p.Addr(), MaxRetries: -1, DialTimeout: 50 * time.Millisecond, ReadTimeout: 50 * time.Millisecond, PoolSize: 16,
		})
		defer func() { _ = c.Close() }()
		var callers sync.WaitGroup
		stop := make(chan struct{})
		ok := make([]int, 16)
		for i := range ok {
			callers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if incr(t, c) == nil {
							ok[i]++
						}
					}
				}
			})
		}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
			faults[rand.IntN(len(faults))]()
			time.Sleep(10 * time.Millisecond)
			p.Pass()
			time.Sleep(5 * time.Millisecond)
		}
		close(stop)
		callers.Wait()
		p.Pass()
		sum := 0
		for _, n := range ok {
			sum += n
		}
		if got := value(t, direct); sum == 0 || got < sum || int64(got) > p.Count("incr") {
			t.Errorf("%d succeeded, %d ran, %d passed: want them to grow", sum, got, p.Count("incr"))
		}
		if err := c.Ping(t.Context()).Err(); err != nil {
			_ = c.Close()
			t.Errorf("after it all: %v", err)
		}
	})
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}
