package contracts_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/_examples/recipes/contracts"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// A table stands for a Redis that has the contracts. It counts how often they are read.
type table struct {
	redis.UniversalClient

	mu    sync.Mutex
	texts map[string]string
	err   error
	reads int
}

func (t *table) HGetAll(ctx context.Context, key string) *redis.MapStringStringCmd {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads++
	cmd := redis.NewMapStringStringCmd(ctx, "hgetall", key)
	cmd.SetVal(maps.Clone(t.texts))
	cmd.SetErr(t.err)
	return cmd
}

func (t *table) set(err error, pairs ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err, t.texts = err, map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		t.texts[pairs[i]] = pairs[i+1]
	}
}

// issued contains the API keys and their customers.
var issued = map[string]string{"sk_acme": "acme", "sk_initech": "initech"}

// service limits each customer by the contract, and requests without an issued key by the address of their peer.
func service(lim *core.Limiter, c *contracts.Contracts) http.Handler {
	isIssued := func(secret string) bool { return issued[secret] != "" }
	byCustomer := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		return c.Limiter(lim, issued[r.Header("X-API-Key")])
	})
	key := keyfunc.APIKey("X-API-Key", keyfunc.Known(isIssued))
	return httplimit.Middleware(lim, key, byCustomer)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// limitOf returns the limit that applies to a request with an API key.
func limitOf(h http.Handler, secret string) string {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-API-Key", secret)
	h.ServeHTTP(w, r)
	return w.Header().Get("X-RateLimit-Limit")
}

// TestContracts changes contracts, breaks one, and makes reading fail: a change must take effect after a minute, and contracts that were right
// must stay.
func TestContracts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		rdb := &table{}
		rdb.set(nil, "acme", "token_bucket 250/1m name=requests", "initech", "token_bucket 1000/1m burst=2000 name=requests")
		c := contracts.New(t.Context(), rdb, slog.New(slog.NewTextHandler(&logs, nil)))
		h := service(core.MustNewMemory("customers", core.TokenBucket(core.PerMinute(60), core.LimitName("requests"))), c)
		for _, step := range []struct {
			err           error
			acme, initech string    // the texts; "": no contract
			want          [2]string // the limits of acme and initech
			logged        string    // a part of the only line; "": none
		}{
			{nil, "token_bucket 500/1m name=requests", "token_bucket 1000/1m burst=2000 name=requests", [2]string{"500", "2000"}, ""},
			{nil, "token_bucket -1/1m name=requests", "token_bucket 900/1m name=requests", [2]string{"500", "900"}, "contracts=1"},
			{context.DeadlineExceeded, "", "", [2]string{"500", "900"}, "the contracts stay as they were"},
			{nil, "", "token_bucket 900/1m name=requests", [2]string{"60", "900"}, ""},
			{nil, "unlimited", "token_bucket 0/1m name=requests", [2]string{"", "0"}, ""},
		} {
			logs.Reset()
			var pairs []string
			for customer, text := range map[string]string{"acme": step.acme, "initech": step.initech} {
				if text != "" {
					pairs = append(pairs, customer, text)
				}
			}
			rdb.set(step.err, pairs...)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := [2]string{limitOf(h, "sk_acme"), limitOf(h, "sk_initech")}; got != step.want {
				t.Errorf("%+v: got the limits %v, want %v", step, got, step.want)
			}
			if n := strings.Count(logs.String(), "\n"); n != min(1, len(step.logged)) || !strings.Contains(logs.String(), step.logged) {
				t.Errorf("%+v: got the log %q, want one line with %q, or none", step, logs.String(), step.logged)
			}
		}
	})
}

// TestInventedKeys sends 10,003 keys that were never issued, while Redis is down. They must cause no look-up, and at most one log line per
// minute, which contains no key. A customer with a contract must keep it.
func TestInventedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&logs, nil))
		rdb := &table{}
		rdb.set(nil, "acme", "token_bucket 1000/1m name=requests")
		c := contracts.New(t.Context(), rdb, logger)
		lim := core.MustNewMemory("customers", core.TokenBucket(core.PerMinute(60), core.LimitName("requests")), core.Logger(logger))
		h := service(lim, c)
		rdb.set(context.DeadlineExceeded)
		time.Sleep(time.Minute)
		synctest.Wait()
		var limits sync.Map
		var sent atomic.Int64
		var clients sync.WaitGroup
		for i := range 7 {
			clients.Go(func() {
				for n := range 1429 {
					limits.Store(limitOf(h, fmt.Sprintf("sk_live_%d_%d", i, n)), true)
					sent.Add(1)
				}
			})
		}
		clients.Wait()
		if sent.Load() != 10_003 {
			t.Errorf("%d requests were sent, want 10003", sent.Load())
		}
		limits.Range(func(limit, _ any) bool {
			if limit != "60" {
				t.Errorf("a key that was never issued has the limit %v, want 60", limit)
			}
			return true
		})
		if got := limitOf(h, "sk_acme"); got != "1000" {
			t.Errorf("the customer has the limit %s, want 1000", got)
		}
		if rdb.reads != 2 {
			t.Errorf("the contracts were read %d times, want 2", rdb.reads)
		}
		if text := logs.String(); strings.Count(text, "\n") > 2 || strings.Contains(text, "sk_") {
			t.Errorf("got the log %s, want at most 2 lines, without a key", text)
		}
	})
}

// TestHash reads the contracts from a Redis.
func TestHash(t *testing.T) {
	t.Parallel()
	rdb := redisclient.New(t, &redis.Options{Addr: mini.Redis(t).Addr()})
	if err := rdb.HSet(t.Context(), contracts.Key, "acme", "fixed_window 7/1m").Err(); err != nil {
		t.Fatal(err)
	}
	c := contracts.New(t.Context(), rdb, slog.Default())
	lim, err := c.Limiter(core.MustNew(rdb, "customers", core.FixedWindow(core.PerMinute(3))), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if res, err := lim.Allow(t.Context(), "customer:acme"); err != nil || res.Limit != 7 {
		t.Errorf("got %+v, %v; want the limit 7", res, err)
	}
}
