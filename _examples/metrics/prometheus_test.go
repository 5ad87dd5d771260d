package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/process"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	requireEnv    = "REDISLIMIT_REQUIRE_PROMETHEUS" // if set, the tests fail without Prometheus, instead of being skipped
	rulesFile     = "../../docs/prometheus/rules.yml"
	rulesTestFile = "../../docs/prometheus/rules_test.yml"
	dashboardFile = "../../docs/grafana/dashboard.json"
	patience      = time.Minute // how long each wait of the test takes at most
)

// TestRules runs promtool's unit tests of the rules, and checks that every alert fires in them and is in docs/metrics.md.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool := binary(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", rulesFile}, {"test", "rules", rulesTestFile}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	rules, tests, document := read(t, rulesFile), read(t, rulesTestFile), read(t, "../../docs/metrics.md")
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	for _, alert := range alerts {
		if !strings.Contains(tests, `alertname="`+alert[1]+`"`) {
			t.Errorf("the alert %s does not fire in %s, want a test of it", alert[1], rulesTestFile)
		}
		if !strings.Contains(document, "`"+alert[1]+"`") {
			t.Errorf("the alert %s is not in docs/metrics.md", alert[1])
		}
	}
	if len(alerts) == 0 {
		t.Error("no alert found in the rules")
	}
}

// TestPrometheus lets a real Prometheus scrape the example, while its Redis is
// healthy, slow, and paused. Each alert must fire when it should, and each query of the
// dashboard must have a result.
//
// The rules are those in docs/prometheus, in time-lapse: a minute becomes a second, and the minutes for
// which an alert waits become tenths of a second.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	program := binary(t, "prometheus")
	redis := redistest.Server(t)
	load := startLoad(t, redis)
	p := startPrometheus(t, program, load.app)
	panels := readDashboard(t)

	// Some requests are denied, but too few for an alert.
	unhealthy := []string{"Alerts", "Failures of Redis", "Requests without a decision", "Slots lost"}
	misuse := []string{"Share without the key", "Not sent in time", "Bans that begin", "Denied because banned", "Given up and cancelled"}
	p.wantPanels(panels, func(title string) bool { return !slices.Contains(unhealthy, title) && !slices.Contains(misuse, title) })
	p.wantNone()

	load.misused.Store(true)
	slow := load.slowRedis()
	p.wantAlerts(map[string]string{
		"RateLimitDeniesMany":    "demo-user",
		"RateLimitKeysMissing":   "demo-key",
		"RateLimiterSlow":        "demo-user",
		"RateLimiterOverloaded":  "demo-closed",
		"RateLimitBansMany":      "demo-bans",
		"RateLimitWaitersGiveUp": "demo-waits",
	})
	p.wantPanels(panels, func(title string) bool { return slices.Contains(misuse, title) })
	slow()
	load.misused.Store(false)

	redis.Pause()
	p.wantAlerts(map[string]string{
		"RateLimitsWithoutRedis":   "demo-user",
		"RateLimitsByFallback":     "demo-user",
		"RateLimiterFailsRequests": "demo-closed",
		"RateLimitSlotsLost":       "demo-slots",
	})
	p.wantPanels(panels, func(title string) bool { return slices.Contains(unhealthy, title) })
	redis.Resume()
	p.wantEnd("RateLimitsWithoutRedis")

	fired := map[string][]string{}
	for outages := 0; fired["RateLimiterRedisFlaps"] == nil || fired["RateLimiterRedisFailures"] == nil; outages++ {
		if outages == 10 { // on a busy machine the outages are long, so that few of them are within the range of a rule
			t.Fatalf("after 10 more outages, only the alerts %v fired, want RateLimiterRedisFlaps and RateLimiterRedisFailures", fired)
		}
		redis.Pause()
		p.wantResult(`redislimit_fallback_active{redislimit_limiter_name="demo-user"} == 1`)
		redis.Resume()
		p.wantResult(`redislimit_fallback_active{redislimit_limiter_name="demo-user"} == 0`)
		firing, err := p.alerts()
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(fired, firing)
	}
}

// binary returns the path of a program. If the machine does not have it, the test is skipped, or fails if requireEnv is set.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv(requireEnv) != "":
		t.Fatalf("no %s on this machine, and %s is set", name, requireEnv)
	}
	t.Skipf("no %s on this machine", name)
	return ""
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A load sends requests to the example, and uses limiters that the example does not have.
type load struct {
	t       *testing.T
	redis   *redistest.Instance
	app     *httptest.Server
	misused atomic.Bool // whether requests come without keys, and many from one user
}

func startLoad(t *testing.T, server *redistest.Instance) *load {
	t.Helper()
	telemetry, metrics, err := prometheusMetrics()
	if err != nil {
		t.Fatal(err)
	}
	rdb := connect("redis://" + server.Addr)
	settings := core.Options(core.Timeout(2*time.Second), telemetry)
	failClosed := core.MustNew(rdb, "demo-closed", core.TokenBucket(core.PerSecond(1000)), core.FailClosed(), settings)
	leased := core.MustNew(rdb, "demo-lease", core.TokenBucket(core.PerSecond(1000)), core.Lease(time.Second), settings)
	bans := core.MustNew(rdb, "demo-bans", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Minute), settings)
	waits := core.MustNew(rdb, "demo-waits", core.TokenBucket(core.PerMinute(1)), settings)
	slots := core.MustNew(rdb, "demo-slots", core.InFlight(2, core.SlotTTL(3*time.Second)), settings)
	l := &load{t: t, redis: server, app: httptest.NewServer(routes(rdb, metrics, settings))}

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		l.app.Close()
		for _, lim := range []*core.Limiter{failClosed, leased, bans, waits, slots} {
			_ = lim.Close()
		}
		_ = rdb.Close()
	})
	work := make(chan int)
	running.Go(func() {
		defer close(work)
		for n := 0; ctx.Err() == nil; n++ {
			select {
			case work <- n:
			case <-ctx.Done():
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	for range 8 { // some of the workers wait for Redis, at most for the timeout
		running.Go(func() {
			for n := range work {
				l.request(ctx, n)
				_, _ = failClosed.Allow(ctx, "anything")
				if l.misused.Load() { // a real overload needs more than this machine can send
					inside.Core.Emit(ctx, failClosed, core.Event{Kind: core.EventOverload, Cost: 1})
				}
				_, _ = leased.Allow(ctx, "anything")
				l.banAndWait(ctx, bans, waits, fmt.Sprint(n))
			}
		})
	}
	running.Go(func() { // the work takes as long as the test
		r, err := slots.Acquire(ctx, "work", 1)
		if err != nil || !r.Allowed {
			t.Errorf("Acquire: got %v, %v; want a slot", r, err)
			return
		}
		<-ctx.Done()
		_ = r.Release(ctx) // the slot was lost in the outage
	})
	return l
}

// banAndWait waits for a unit of a key that is not used otherwise, and gives the unit back. If the load is misused, it keeps the unit, so that
// a second caller waits in vain, and it gets the key banned by another limiter.
func (l *load) banAndWait(ctx context.Context, bans, waits *core.Limiter, key string) {
	if r, err := waits.AcquireWait(ctx, key, 1); err == nil && !l.misused.Load() {
		_ = r.Cancel(ctx)
	}
	_, _ = bans.Allow(ctx, key)
	if !l.misused.Load() {
		return
	}
	_, _ = bans.Allow(ctx, key)
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _ = waits.Wait(soon, key)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// request makes the nth request. Most requests are by a user of their own, one in ten is by alice,
// who exceeds her limit, and few are by address or key.
func (l *load) request(ctx context.Context, n int) {
	user := fmt.Sprint("user", n)
	switch {
	case n%40 == 0:
		l.get(ctx, "/", "", "")
		l.get(ctx, "/key", "", fmt.Sprint("demo-key-", n/40%2+1))
		return
	case l.misused.Load() && n%2 == 0:
		l.get(ctx, "/key", "", "")
		user = "alice"
	case n%10 == 0:
		user = "alice"
	}
	l.get(ctx, "/user", user, "")
}

func (l *load) get(ctx context.Context, path, user, key string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.app.URL+path, http.NoBody)
	if err != nil {
		l.t.Errorf("making a request: %v", err)
		return
	}
	if user != "" {
		r.SetBasicAuth(user, "x")
	}
	r.Header.Set("X-API-Key", key)
	resp, err := l.app.Client().Do(r)
	switch {
	case err == nil:
		_ = resp.Body.Close()
	case !errors.Is(err, context.Canceled):
		l.t.Errorf("a request failed: %v", err)
	}
}

// slowRedis delays most calls to Redis by up to 300 ms, until stop is called.
func (l *load) slowRedis() (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	rdb := l.redis.Client(l.t)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			_ = rdb.ClientPause(context.WithoutCancel(ctx), 300*time.Millisecond)
			sleep(ctx, 50*time.Millisecond)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// A monitor is a running Prometheus.
type monitor struct {
	t   *testing.T
	url string
}

// startPrometheus starts a Prometheus that scrapes app, with the rules in time-lapse.
func startPrometheus(t *testing.T, program string, app *httptest.Server) *monitor {
	t.Helper()
	dir := t.TempDir()
	rules := regexp.MustCompile(`for: (\d+)m\b`).ReplaceAllString(read(t, rulesFile), "for: ${1}00ms")
	rules = regexp.MustCompile(`\b(\d+)m\b`).ReplaceAllString(rules, "${1}s")
	config := fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 250ms}
rule_files: [rules.yml]
scrape_configs: [{job_name: demo, static_configs: [{targets: [%q]}]}]
`, strings.TrimPrefix(app.URL, "http://"))
	for name, text := range map[string]string{"rules.yml": rules, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := port.Addr().String()
	_ = port.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	// Prometheus ends with the test, not with a context.
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		proc.Kill()
		_ = log.Close()
		if t.Failed() {
			t.Log(read(t, log.Name()))
		}
	})
	p := &monitor{t: t, url: "http://" + addr}
	p.until("Prometheus answers", func() error {
		var ignored any
		return p.get("/api/v1/query?query=1", &ignored)
	})
	return p
}

// until waits until check returns nil.
func (p *monitor) until(what string, check func() error) {
	p.t.Helper()
	begun := time.Now()
	for {
		err := check()
		if err == nil {
			p.t.Logf("%v: %s", time.Since(begun).Round(time.Millisecond), what)
			return
		}
		if time.Since(begun) > patience {
			p.t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// get requests a path of Prometheus's API, and stores the data of the answer in data.
func (p *monitor) get(path string, data any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Error string          `json:"error"`
		Data  json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// results returns how many series of a query have a number as their value.
func (p *monitor) results(query string) (int, error) {
	var data struct {
		Result []struct {
			Value [2]any `json:"value"`
		} `json:"result"`
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(query), &data); err != nil {
		return 0, fmt.Errorf("%s: %w", query, err)
	}
	numbers := 0
	for _, series := range data.Result {
		if series.Value[1] != "NaN" {
			numbers++
		}
	}
	return numbers, nil
}

// wantResult waits until a query has a result.
func (p *monitor) wantResult(query string) {
	p.t.Helper()
	p.until(query, func() error {
		got, err := p.results(query)
		if err == nil && got == 0 {
			err = errors.New("no result")
		}
		return err
	})
}

// wantPanels waits until all queries of the dashboard can be answered, and those whose titles are expected
// to have results have some.
func (p *monitor) wantPanels(queries []query, expected func(title string) bool) {
	p.t.Helper()
	p.until("the dashboard", func() error {
		for _, q := range queries {
			got, err := p.results(q.expr)
			if err != nil {
				return err
			}
			if got == 0 && expected(q.title) {
				return fmt.Errorf("%s: no result of %s", q.title, q.expr)
			}
		}
		return nil
	})
}

// alerts returns the limiters for which each alert fires.
func (p *monitor) alerts() (map[string][]string, error) {
	var data struct {
		Groups []struct {
			Rules []struct {
				Name      string `json:"name"`
				Health    string `json:"health"`
				LastError string `json:"lastError"`
				Alerts    []struct {
					State       string            `json:"state"`
					Labels      map[string]string `json:"labels"`
					Annotations map[string]string `json:"annotations"`
				} `json:"alerts"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := p.get("/api/v1/rules", &data); err != nil {
		return nil, err
	}
	firing := map[string][]string{}
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				return nil, fmt.Errorf("%s: %s %s", rule.Name, rule.Health, rule.LastError)
			}
			for _, alert := range rule.Alerts {
				if alert.State == "firing" {
					firing[rule.Name] = append(firing[rule.Name], alert.Labels["redislimit_limiter_name"])
				}
				for _, text := range alert.Annotations {
					if strings.Contains(text, "<") { // <no value>, <error ...>
						p.t.Errorf("the alert %s has the text %q, want no <no value> and no <error>", rule.Name, text)
					}
				}
			}
		}
	}
	return firing, nil
}

// wantNone checks that no alert fires. RateLimiterSlow may fire, because it depends on the machine how fast Redis answers.
func (p *monitor) wantNone() {
	p.t.Helper()
	firing, err := p.alerts()
	delete(firing, "RateLimiterSlow")
	if err != nil || len(firing) > 0 {
		p.t.Errorf("while nothing is wrong, the alerts %v fire, error %v; want none", firing, err)
	}
}

// wantAlerts waits until each alert fires for its limiter.
func (p *monitor) wantAlerts(want map[string]string) {
	p.t.Helper()
	p.until(fmt.Sprint("firing: ", slices.Sorted(maps.Keys(want))), func() error {
		firing, err := p.alerts()
		if err != nil {
			return err
		}
		for alert, limiter := range want {
			if !slices.Contains(firing[alert], limiter) {
				return fmt.Errorf("%s does not fire for %s: %v", alert, limiter, firing)
			}
		}
		return nil
	})
}

// wantEnd waits until an alert no longer fires.
func (p *monitor) wantEnd(alert string) {
	p.t.Helper()
	p.until("no longer firing: "+alert, func() error {
		firing, err := p.alerts()
		if err == nil && len(firing[alert]) > 0 {
			err = fmt.Errorf("fires for %v", firing[alert])
		}
		return err
	})
}

// A query is one of the queries of the dashboard.
type query struct{ title, expr string }

// readDashboard returns the queries of the dashboard as Grafana sends them, with
// values for its variables.
func readDashboard(t *testing.T) []query {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
		Annotations struct {
			List []struct {
				Name string `json:"name"`
				Expr string `json:"expr"`
			} `json:"list"`
		} `json:"annotations"`
		Templating struct {
			List []struct {
				Name  string `json:"name"`
				Query any    `json:"query"` // an object or a string
			} `json:"list"`
		} `json:"templating"`
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &dashboard); err != nil {
		t.Fatal(err)
	}
	var queries []query
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, query{panel.Title, target.Expr})
		}
	}
	for _, annotation := range dashboard.Annotations.List {
		queries = append(queries, query{annotation.Name, annotation.Expr})
	}
	for _, variable := range dashboard.Templating.List {
		if of, ok := variable.Query.(map[string]any); ok {
			values := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).ReplaceAllString(fmt.Sprint(of["query"]), "count by ($2) ($1)")
			queries = append(queries, query{"variable " + variable.Name, values})
		}
	}
	values := strings.NewReplacer("$__rate_interval", "5s", "$job", ".+", "$limiter", ".+")
	for i := range queries {
		queries[i].expr = values.Replace(queries[i].expr)
		if strings.Contains(queries[i].expr, "$") {
			t.Errorf("%s: the query %s has a variable without a value", queries[i].title, queries[i].expr)
		}
	}
	if len(queries) < 10 {
		t.Fatalf("%d queries found in the dashboard, want at least 10", len(queries))
	}
	return queries
}
