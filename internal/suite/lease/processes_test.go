package lease_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/process"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// A share is the part of one process in TestLeaseProcesses, which starts this test binary again
// with it, as JSON, in the environment variable shareOf.
type share struct {
	Addr    string        `json:"addr"`
	Variant string        `json:"variant"`
	Lease   time.Duration `json:"lease"`
	Lasts   time.Duration `json:"lasts"`
	Count   int64         `json:"count"` // per second

	// What the process did.
	Admitted int64     `json:"admitted"`
	Leased   int64     `json:"leased"`
	Denied   int64     `json:"denied"`
	Begun    time.Time `json:"begun"`
	Ended    time.Time `json:"ended"`
	Err      string    `json:"err"`
}

const shareOf = "REDISLIMIT_LEASE_SHARE"

// TestLeaseProcesses has three processes with 64 callers each ask for one key for a while, more
// often than its limit admits. All of them together admit no more than the limit does. What
// they admit of that is in the log.
//
// REDISLIMIT_LEASE_SECONDS is for how long each algorithm is tested.
func TestLeaseProcesses(t *testing.T) {
	if given := os.Getenv(shareOf); given != "" {
		takeShare(t, given)
		return
	}
	lasts := 500 * time.Millisecond
	if s := os.Getenv("REDISLIMIT_LEASE_SECONDS"); s != "" {
		lasts, _ = time.ParseDuration(s + "s")
	}
	server := redistest.Server(t)
	for _, v := range limits.All() {
		if v.Kind.Unleasable != "" {
			continue
		}
		var plain float64 // the share that is admitted without leases
		for _, d := range []time.Duration{0, 50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
			if d != 100*time.Millisecond && lasts < time.Second {
				continue // a short test is not for how much is admitted
			}
			t.Run(v.Name+"/"+d.String(), func(t *testing.T) {
				if err := server.Client(t).FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				shares := make([]share, 3)
				var all sync.WaitGroup
				for i := range shares {
					shares[i] = share{Addr: server.Addr, Variant: v.Name, Lease: d, Lasts: lasts, Count: 20_000}
					all.Go(func() { shares[i].run(t) })
				}
				all.Wait()
				sum := shares[0]
				for _, s := range shares[1:] {
					sum.Admitted, sum.Leased, sum.Denied = sum.Admitted+s.Admitted, sum.Leased+s.Leased, sum.Denied+s.Denied
					sum.Err += s.Err
					if s.Begun.Before(sum.Begun) {
						sum.Begun = s.Begun
					}
					if s.Ended.After(sum.Ended) {
						sum.Ended = s.Ended
					}
				}
				if sum.Err != "" {
					t.Fatal(sum.Err)
				}
				took := sum.Ended.Sub(sum.Begun)
				most := mostIn(v, sum.Count, sum.Begun, took)
				admits := float64(sum.Admitted) / took.Seconds()
				if d == 0 {
					plain = admits
				}
				t.Logf("%d admitted, %d from leases, %d denied in %v; the limit admits %d, %.3f times what was admitted without leases", sum.Admitted,
					sum.Leased, sum.Denied, took.Round(time.Millisecond), most, admits/max(plain, 1))
				if sum.Admitted > most {
					t.Errorf("%d were admitted, and the limit admits %d", sum.Admitted, most)
				}
				if d > 0 && sum.Leased == 0 {
					t.Error("nothing was leased")
				}
			})
		}
	}
}

// mostIn returns how many units a limit of count a second admits from an instant on: a bucket by
// its rate, others by how many of their windows there may be.
func mostIn(v limits.Variant, count int64, begun time.Time, lasts time.Duration) int64 {
	switch {
	case v.Kind.Bucket:
		return count + int64(lasts)*count/int64(time.Second) + 1
	case v.Aligned || v.Kind == algorithm.SlidingWindowCounter:
		return count * (begun.Add(lasts).Unix() - begun.Unix() + 1)
	default:
		return count * (int64(lasts/time.Second) + 1)
	}
}

// run starts the process, and returns when it has ended.
func (s *share) run(t *testing.T) {
	given, err := json.Marshal(s)
	if err != nil {
		t.Error(err)
		return
	}
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLeaseProcesses$", "-test.v")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), shareOf+"="+string(given)), &out, &out
	p, err := process.Start(cmd)
	if err != nil {
		t.Error(err)
		return
	}
	<-p.Done
	_, answer, _ := strings.Cut(out.String(), shareOf)
	answer, _, _ = strings.Cut(answer, "\n")
	if err := json.Unmarshal([]byte(answer), s); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
}

// takeShare is what each process does.
func takeShare(t *testing.T, given string) {
	var s share
	if err := json.Unmarshal([]byte(given), &s); err != nil {
		t.Fatal(err)
	}
	var limit core.Limit
	for _, v := range limits.All() {
		if v.Name == s.Variant {
			limit = v.With(core.PerSecond(s.Count), limits.Settings{Burst: s.Count})
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	opts := []core.Option{limit, core.FailClosed(), core.Timeout(time.Minute)}
	if s.Lease > 0 {
		opts = append(opts, core.Lease(s.Lease))
	}
	lim := core.MustNew(rdb, "processes", opts...)
	var mu sync.Mutex
	var callers sync.WaitGroup
	s.Begun = time.Now()
	for range 64 {
		callers.Go(func() {
			var admitted, leased, denied int64
			var err error
			for time.Since(s.Begun) < s.Lasts {
				var res core.Result
				if res, err = lim.Allow(context.Background(), "k"); err != nil {
					break
				}
				switch {
				case res.Source == core.SourceLease:
					admitted, leased = admitted+1, leased+1
				case res.Allowed:
					admitted++
				default:
					denied++
					time.Sleep(time.Millisecond)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			s.Admitted, s.Leased, s.Denied = s.Admitted+admitted, s.Leased+leased, s.Denied+denied
			if err != nil {
				s.Err = err.Error()
			}
		})
	}
	callers.Wait()
	s.Ended = time.Now()
	if err := lim.Close(); err != nil {
		t.Error(err)
	}
	answer, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString(shareOf + string(answer) + "\n"); err != nil {
		t.Fatal(err)
	}
}
