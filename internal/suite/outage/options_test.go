package outage

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// A clientKind makes a client of one server, with options that may end a call to Redis early, late or never.
type clientKind struct {
	name string
	make func(addr string, o redis.Options) redis.UniversalClient
}

func clientKinds() []clientKind {
	return []clientKind{
		{"Client", func(addr string, o redis.Options) redis.UniversalClient {
			o.Addr = addr
			return redis.NewClient(&o)
		}},
		{"ClusterClient", func(addr string, o redis.Options) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
				},
				ContextTimeoutEnabled: o.ContextTimeoutEnabled, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
				DialTimeout: o.DialTimeout, PoolTimeout: o.PoolTimeout, PoolSize: o.PoolSize,
				MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
			})
		}},
		{"Ring", func(addr string, o redis.Options) redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{
				Addrs:                 map[string]string{"shard": addr},
				ContextTimeoutEnabled: o.ContextTimeoutEnabled, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
				DialTimeout: o.DialTimeout, PoolTimeout: o.PoolTimeout, PoolSize: o.PoolSize,
				MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
			})
		}},
	}
}

// A timing is a set of client options that change how long a call may take. early names the option that ends a call before
// core.Timeout does, if there is one.
type timing struct {
	name    string
	options redis.Options
	early   string
}

func timings(timeout time.Duration) []timing {
	soon := timeout / 3
	return []timing{
		{"the defaults", redis.Options{}, ""},
		{"ReadTimeout -1", redis.Options{ReadTimeout: -1}, ""},
		{"ReadTimeout -2", redis.Options{ReadTimeout: -2}, ""},
		{"ReadTimeout -3s", redis.Options{ReadTimeout: -3 * time.Second}, ""},
		{"WriteTimeout -2", redis.Options{WriteTimeout: -2}, ""},
		{"ReadTimeout -2, WriteTimeout 1m", redis.Options{ReadTimeout: -2, WriteTimeout: time.Minute}, ""},
		{"ReadTimeout 1m", redis.Options{ReadTimeout: time.Minute, WriteTimeout: time.Minute}, ""},
		{"ReadTimeout soon", redis.Options{ReadTimeout: soon}, "ReadTimeout of " + soon.String()},
		{"a connection for one", redis.Options{PoolSize: 1, PoolTimeout: time.Minute, DialTimeout: time.Minute}, ""},
		{"retries", redis.Options{MaxRetries: 100, MinRetryBackoff: time.Second, MaxRetryBackoff: time.Minute}, ""},
	}
}

// TestClientOptions makes a server fall silent. Whatever the options of the client are, no decision takes longer than
// core.Timeout. A decision may end sooner because of an option of the client: then the error names the option and the time
// that the call took.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	for _, kind := range clientKinds() {
		for _, contextTimeout := range []bool{true, false} {
			t.Run(kind.name+"/"+clientName(contextTimeout), func(t *testing.T) {
				t.Parallel()
				check.Rounds(t, timeouts[1:], func(r *check.Round, timeout time.Duration) {
					e := newEnv(r, setup{})
					var all []*hasty
					for _, c := range timings(timeout) {
						c.options.ContextTimeoutEnabled = contextTimeout
						rdb := kind.make(e.proxy.Addr(), c.options)
						r.Cleanup(func() { _ = rdb.Close() })
						all = append(all, newHasty(r, c, rdb, timeout))
					}
					e.proxy.Silence()
					each(all, (*hasty).during)
					e.proxy.Pass()
					each(all, (*hasty).after)
				})
			})
		}
	}
}

// TestSlowCallbacks makes a function of the user take long while the client makes a connection: no decision waits for that
// function.
func TestSlowCallbacks(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(o *redis.Options, wait func()){
		"CredentialsProvider": func(o *redis.Options, wait func()) {
			o.CredentialsProvider = func() (name, password string) { wait(); return "default", "" }
		},
		"CredentialsProviderContext": func(o *redis.Options, wait func()) {
			o.CredentialsProviderContext = func(context.Context) (name, password string, err error) { wait(); return "default", "", nil }
		},
		"OnConnect": func(o *redis.Options, wait func()) {
			o.OnConnect = func(context.Context, *redis.Conn) error { wait(); return nil }
		},
	} {
		check.Rounds(t, timeouts[1:], func(r *check.Round, timeout time.Duration) {
			var slow atomic.Bool
			released := make(chan struct{})
			defer close(released)
			e := newEnv(r, setup{options: func(o *redis.Options) {
				o.ContextTimeoutEnabled, o.ConnMaxLifetime = true, 50*time.Millisecond
				set(o, func() {
					if slow.Load() {
						<-released
					}
				})
			}})
			l := newHasty(r, timing{name: name}, e.rdb, timeout)
			slow.Store(true)
			time.Sleep(100 * time.Millisecond) // the next call needs a new connection
			l.during()
		})
	}
}

// TestFailoverClientOptions repeats TestClientOptions with a client of a master behind Sentinel.
func TestFailoverClientOptions(t *testing.T) {
	t.Parallel()
	check.Rounds(t, timeouts[1:], func(r *check.Round, timeout time.Duration) {
		g := redistest.Sentinel(r)
		var all []*hasty
		for _, c := range timings(timeout)[:5] {
			rdb := redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: g.Name, SentinelAddrs: g.Addrs,
				ContextTimeoutEnabled: true, ReadTimeout: c.options.ReadTimeout, WriteTimeout: c.options.WriteTimeout,
			})
			r.Cleanup(func() { _ = rdb.Close() })
			all = append(all, newHasty(r, c, rdb, timeout))
		}
		for _, s := range g.Servers { // the replica, too: otherwise it becomes the master during a long Timeout, and answers
			s.Pause()
		}
		each(all, (*hasty).during)
		for _, s := range g.Servers {
			s.Resume()
		}
	})
}

// clientTimeout is the default ReadTimeout of clients. It ends a call before a longer Timeout.
const clientTimeout = 5 * time.Second

// A hasty is a limiter whose decisions must not take longer than its Timeout.
type hasty struct {
	*check.Round
	timing

	limiter *core.Limiter
	timeout time.Duration
}

func newHasty(r *check.Round, c timing, rdb core.Client, timeout time.Duration) *hasty {
	r.Helper()
	l, err := core.New(rdb, "hasty", core.FixedWindow(core.PerHour(limit)), core.FailClosed(), core.Timeout(timeout), core.MaxBatch(1))
	check.Need(r, err)
	if _, err := l.Allow(r.Context(), "k"); err != nil { // this call makes the connection and loads the script
		r.Errorf("while Redis is healthy: got error %v, want nil", err)
	}
	r.Cleanup(func() { _ = l.Close() })
	return &hasty{r.Part(c.name), c, l, timeout}
}

func each(all []*hasty, part func(*hasty)) {
	var running sync.WaitGroup
	for _, h := range all {
		running.Go(func() { part(h) })
	}
	running.Wait()
}

// during decides while the server is silent.
func (h *hasty) during() {
	for i := range 3 {
		start, ended := time.Now(), make(chan error, 1)
		go func() {
			_, err := h.limiter.Allow(context.Background(), "k")
			ended <- err
		}()
		var err error
		select {
		case err = <-ended:
		case <-time.After(4 * h.timeout):
			h.Errorf("decision %d has not returned after %v, want it to end at the Timeout", i, 4*h.timeout)
			return
		}
		took := time.Since(start)
		if !errors.Is(err, core.ErrUnavailable) || took > h.timeout+max(100*time.Millisecond, h.timeout/20) { // check.Rounds calls a machine that late on time
			h.Errorf("decision %d took %v, want at most the Timeout of %v and ErrUnavailable; got error %v", i, took, h.timeout, err)
		}
		if i > 0 {
			continue // the circuit breaker may be open
		}
		if h.early != "" && (took > h.timeout*2/3 || !strings.Contains(err.Error(), h.early) || strings.Contains(err.Error(), "within "+h.timeout.String())) {
			h.Errorf("after %v: got error %v, want one that names the client's %s, well before the Timeout", took, err, h.early)
		}
		waits := min(h.timeout, clientTimeout)
		if h.early == "" && took < waits*9/10 {
			h.Errorf("after %v, before the Timeout of %v: got error %v, want the decision to wait for %v", took, h.timeout, err, waits)
		}
	}
}

// after waits until Redis decides again, once the server answers.
func (h *hasty) after() { awaitRedis(h, h.limiter, "k") }
