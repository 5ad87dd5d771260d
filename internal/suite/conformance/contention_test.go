package conformance_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// contendEnv is the environment variable that makes TestMain run one of the processes of TestContention.
const contendEnv = "REDISLIMIT_CONTEND"

func TestMain(m *testing.M) {
	if addr := os.Getenv(contendEnv); addr != "" {
		contend(strings.Split(addr, ","), os.Getenv(contendEnv+"_ALONE") != "")
		return
	}
	os.Exit(check.Run(m))
}

// contested returns limits of a thousand units of every algorithm. Their period is 400 days, so that no unit comes back
// while the test runs. Buckets also have a limit per minute, where the number of units that come back is known.
func contested() []core.Limit {
	var all []core.Limit
	for _, v := range limits.All() {
		all = append(all, v.Limit(core.Per(1000, 400*24*time.Hour)))
		if v.Kind.Debt {
			all = append(all, v.Limit(core.PerMinute(1000)))
		}
	}
	return all
}

// TestContention makes three processes with 64 goroutines each use one key: exactly a thousand calls are admitted, and as
// many more as units came back meanwhile. It runs with decisions that share round trips, and with decisions that have a
// round trip each.
func TestContention(t *testing.T) {
	for store, addrs := range map[string][]string{"Redis": {redistest.Server(t).Addr}, "Cluster": redistest.Cluster(t)} {
		for how, alone := range map[string]string{"together": "", "alone": "1"} {
			t.Run(store+"/"+how, func(t *testing.T) {
				for _, addr := range addrs {
					node := redisclient.New(t, &redis.Options{Addr: addr})
					err := node.FlushAll(t.Context()).Err()
					_ = node.Close()
					check.Need(t, err)
				}
				contention(t, contendEnv+"="+strings.Join(addrs, ","), contendEnv+"_ALONE="+alone)
			})
		}
	}
}

func contention(t *testing.T, env ...string) {
	started := time.Now()
	outputs := make([]string, 3)
	var wg sync.WaitGroup
	for i := range outputs {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), env...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("process %d: %v\n%s", i, err, out)
			}
			outputs[i] = string(out)
		})
	}
	wg.Wait()
	took := time.Since(started)
	for i, limit := range contested() {
		var total int
		for _, out := range outputs {
			lines := strings.Split(out, "\n")
			n, err := strconv.Atoi(lines[min(i, len(lines)-1)])
			if err != nil {
				t.Fatalf("a process printed %q, want a number for each limit", out)
			}
			total += n
		}
		most := 1000 + int(took*time.Duration(limit.Rate().Count())/limit.Rate().Period())
		if total < 1000 || total > most {
			t.Errorf("%v: %d calls were admitted, want 1000 to %d", limit, total, most)
		}
	}
}

// contend is one of the processes. It prints how many calls each limit admitted.
func contend(addrs []string, alone bool) {
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, ReadTimeout: time.Minute}) // a client of a Cluster if there are several addresses
	defer func() { _ = client.Close() }()
	options := []core.Option{core.FailClosed(), core.Timeout(time.Minute)}
	if alone {
		options = append(options, core.MaxBatch(1))
	}
	for i, limit := range contested() {
		lim := core.MustNew(client, fmt.Sprint("contested", i), append(options, limit)...)
		var admitted atomic.Int64
		check.Together(64, func(int) {
			for range 8 {
				res, err := lim.Allow(context.Background(), "k")
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				if res.Allowed {
					admitted.Add(1)
				}
			}
		})
		fmt.Println(admitted.Load())
	}
}
