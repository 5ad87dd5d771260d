package recipes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/redislimit/redislimit/_examples/recipes/contracts"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// A limitsFile has limits in YAML, which may change while the service runs.
type limitsFile struct {
	path string
	lim  *core.Limiter                // whose limits are those of the file
	now  atomic.Pointer[core.Limiter] // by the limits that were read last
	text []byte                       // that was read last, right or wrong
}

// read reads the file, if it has changed. If something in it is wrong, the limits stay.
func (f *limitsFile) read() error {
	text, err := os.ReadFile(f.path)
	if err != nil || bytes.Equal(text, f.text) {
		return err
	}
	f.text = text
	var config struct {
		Limits []core.Limit `yaml:"limits"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	lim, err := f.lim.With(config.Limits...)
	if err == nil {
		f.now.Store(lim)
	}
	return err
}

// follow reads the file now and then.
func (f *limitsFile) follow(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.read(); err != nil {
			f.lim.Logger().Error("the limits stay as they are", "file", f.path, "error", err)
		}
	}
}

// limitedBy serves next by the limits of a file.
func limitedBy(ctx context.Context, path string, lim *core.Limiter, next http.Handler) (http.Handler, error) {
	file := &limitsFile{path: path, lim: lim}
	if err := file.read(); err != nil {
		return nil, err
	}
	go file.follow(ctx)
	current := guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return file.now.Load(), nil })
	return httplimit.Middleware(lim, keyfunc.IP(), current)(next), nil
}

// lines are those of a log.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

func (l lines) all() (all []string) {
	for len(l) > 0 {
		all = append(all, <-l)
	}
	return all
}

// TestLimitsFile changes the file, and makes a mistake in it.
func TestLimitsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		log := make(lines, 100)
		lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(1)), core.Logger(slog.New(slog.NewTextHandler(log, nil))))
		if _, err := limitedBy(t.Context(), path, lim, newMux()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without the file: %v", err)
		}
		write("limits:\n- token_bucket 100/1m burst=200 name=requests\n- fixed_window 5000/1d aligned\n")
		handler, err := limitedBy(t.Context(), path, lim, newMux())
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ text, limit, left, logged string }{
			{"", "200", "199", ""},
			{"limits: [token_bucket 100/1m burst=300 name=requests]", "300", "299", ""},
			{"limits: [token_bucket 100/1m burst=0 name=requests]", "300", "299", "burst=0: allowed is 1 to 1000000000"},
			{"limits: []", "300", "299", "no limit given"},
			{"limits: [", "300", "299", "yaml"},
			{"limits: [token_bucket 100/1m burst=400 name=requests]", "400", "399", ""},
		} {
			if step.text != "" {
				write(step.text)
			}
			time.Sleep(time.Minute) // takes no time, and refills the bucket
			synctest.Wait()
			w := get(handler, "/")
			if limit, left := w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"); limit != step.limit || left != step.left {
				t.Errorf("%q: %s of %s left", step.text, left, limit)
			}
			if got := log.all(); len(got) != min(1, len(step.logged)) || !strings.Contains(strings.Join(got, ""), step.logged) {
				t.Errorf("%q: logged is %q, want one line with %q", step.text, got, step.logged)
			}
		}
	})
}

func Example_customers() {
	mux := newMux()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	rdb.HSet(ctx, "contracts",
		"acme", "token_bucket 250/1m name=requests", "initech", "token_bucket 1000/1m burst=2000 name=requests")

	table := contracts.New(ctx, rdb, slog.Default())
	lim := core.MustNew(rdb, "customers", core.TokenBucket(core.PerMinute(60), core.LimitName("requests")))
	byCustomer := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		u, _ := r.Value(userKey{}).(user)
		return table.Limiter(lim, u.name)
	})
	handler := authenticate(httplimit.Middleware(lim, keyfunc.User(userKey{}), byCustomer)(mux))

	for _, name := range []string{"acme", "initech", "alice", "acme"} {
		fmt.Print(name, " ")
		show(get(handler, "/", "User: "+name), "X-RateLimit-Limit", "X-RateLimit-Remaining")
	}
	// Output:
	// acme 200 250 249
	// initech 200 2000 1999
	// alice 200 60 59
	// acme 200 250 248
}

func Example_reserve() {
	hello := newMux()
	mux := http.NewServeMux()

	lim := core.MustNew(rdb, "shop", core.TokenBucket(core.PerSecond(100), core.Burst(10), core.LimitName("backend")))
	lesser, err := lim.With(core.TokenBucket(core.PerSecond(100), core.Burst(7), core.LimitName("backend")))
	if err != nil {
		panic(err)
	}
	mux.Handle("POST /orders", httplimit.Middleware(lim, keyfunc.Global())(hello))
	mux.Handle("GET /suggestions", httplimit.Middleware(lesser, keyfunc.Global())(hello))

	count := map[string]map[int]int{"GET": {}, "POST": {}}
	for range 20 {
		count["GET"][get(mux, "/suggestions").Code]++
	}
	for range 20 {
		count["POST"][send(mux, http.MethodPost, "/orders", "").Code]++
	}
	fmt.Println(count)
	// Output: map[GET:map[200:7 429:13] POST:map[200:3 429:17]]
}
