package main

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/mini"
)

// A server is the example, running in this process.
type server struct {
	*httptest.Server

	t *testing.T
}

// run runs the example with an embedded Redis. stop stops that Redis.
func run(t *testing.T) (s server, stop func()) {
	t.Helper()
	redis := mini.Redis(t)
	telemetry, metrics, err := prometheusMetrics()
	if err != nil {
		t.Fatal(err)
	}
	rdb, err := connect("redis://" + redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	s = server{httptest.NewServer(routes(rdb, metrics, telemetry)), t}
	t.Cleanup(s.Close)
	return s, redis.Close
}

// get requests a path, as a user unless user is empty.
func (s server) get(path, user string) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(s.t.Context()), http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, "x")
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (s server) times(n int, path, user string) {
	s.t.Helper()
	for range n {
		_, _ = s.get(path, user)
	}
}

// scrape returns the samples of /metrics, by name and labels.
func (s server) scrape() map[string]string {
	s.t.Helper()
	status, text := s.get("/metrics", "")
	if status != http.StatusOK {
		s.t.Fatal("/metrics:", status, text)
	}
	samples := map[string]string{}
	for line := range strings.Lines(text) {
		if at := strings.LastIndexByte(line, ' '); at > 0 && line[0] != '#' {
			samples[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return samples
}

func (s server) want(want map[string]string) {
	s.t.Helper()
	got := s.scrape()
	for _, sample := range slices.Sorted(maps.Keys(want)) {
		if got[sample] != want[sample] {
			s.t.Errorf("%s is %q, want %s", sample, got[sample], want[sample])
		}
	}
	if s.t.Failed() {
		s.t.Log(strings.Join(slices.Sorted(maps.Keys(got)), "\n"))
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s, stop := run(t)
	s.times(8, "/user", "alice") // 5 a minute; the deny cache repeats the denial
	s.times(1, "/key", "")       // no key: counted by peer
	s.want(map[string]string{
		`redislimit_decisions_total{redislimit_decision_outcome="allowed",redislimit_decision_source="redis",` +
			`redislimit_limit_name="fixed-1m",redislimit_limiter_name="demo-user"}`: "5",
		`redislimit_decisions_total{redislimit_decision_outcome="denied",redislimit_decision_source="redis",` +
			`redislimit_limit_name="fixed-1m",redislimit_limiter_name="demo-user"}`: "1",
		`redislimit_decisions_total{redislimit_decision_outcome="denied",redislimit_decision_source="deny_cache",` +
			`redislimit_limit_name="fixed-1m",redislimit_limiter_name="demo-user"}`: "2",
		`redislimit_decision_duration_seconds_count{redislimit_decision_outcome="allowed",` +
			`redislimit_decision_source="redis",redislimit_limiter_name="demo-user"}`: "5",
		`redislimit_decision_duration_seconds_bucket{redislimit_decision_outcome="allowed",` +
			`redislimit_decision_source="redis",redislimit_limiter_name="demo-user",le="+Inf"}`: "5",
		`redislimit_breaker_state{redislimit_breaker_state="closed",redislimit_limiter_name="demo-user"}`: "1",
		`redislimit_breaker_state{redislimit_breaker_state="open",redislimit_limiter_name="demo-user"}`:   "0",
		`redislimit_fallback_active{redislimit_limiter_name="demo-user"}`:                                 "0",
		`redislimit_key_fallbacks_total{redislimit_limiter_name="demo-key"}`:                              "1",
		`redislimit_script_loads_total{redislimit_limiter_name="demo-user"}`:                              "1",
	})

	stop()
	s.times(3, "/user", "bob")
	s.want(map[string]string{
		`redislimit_decisions_total{redislimit_decision_outcome="allowed",redislimit_decision_source="fallback",` +
			`redislimit_limit_name="fixed-1m",redislimit_limiter_name="demo-user"}`: "3",
		`redislimit_redis_failures_total{error_type="connection",redislimit_limiter_name="demo-user"}`:    "1",
		`redislimit_breaker_state{redislimit_breaker_state="closed",redislimit_limiter_name="demo-user"}`: "0", // open, or half-open while a probe is under way
		`redislimit_fallback_active{redislimit_limiter_name="demo-user"}`:                                 "1",
	})
	for sample := range s.scrape() {
		for _, key := range []string{"alice", "bob", "127.0.0.1"} {
			if strings.Contains(sample, key) {
				t.Errorf("%s contains %s", sample, key)
			}
		}
	}
}

// TestDocument compares docs/metrics.md with /metrics: every metric and label that the
// document names, in Prometheus's spelling and in OpenTelemetry's, is served, and every
// metric that is served is named.
func TestDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := run(t)
	s.times(7, "/user", "alice")
	s.times(1, "/key", "")
	stop()
	s.times(3, "/user", "bob")
	_, served := s.get("/metrics", "")

	names := regexp.MustCompile(`\bredislimit_\w+`).FindAllString(string(document), -1)
	dotted := regexp.MustCompile("`(redislimit(?:\\.[a-z_]+)+)`").FindAllStringSubmatch(string(document), -1)
	if len(names) < 10 || len(dotted) < 10 {
		t.Fatalf("too few names found: %v, %v", names, dotted)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "redislimit_slots_") || strings.HasPrefix(name, "redislimit_lease_") {
			continue // of InFlight and Lease only, which the app does not use; otel's tests have them
		}
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(served) {
			t.Errorf("the document has %s, /metrics does not", name)
		}
	}
	for _, name := range dotted {
		if name[1] == "redislimit.limit.capacity" || name[1] == "redislimit.limit.remaining" ||
			strings.HasPrefix(name[1], "redislimit.slots.") || strings.HasPrefix(name[1], "redislimit.lease.") {
			continue // attributes of spans only, and metrics of InFlight and Lease only
		}
		if !strings.Contains(served, strings.ReplaceAll(name[1], ".", "_")) {
			t.Errorf("the document has %s, /metrics does not have it", name[1])
		}
	}
	for _, family := range regexp.MustCompile(`# TYPE (redislimit_\w+)`).FindAllStringSubmatch(served, -1) {
		if !strings.Contains(string(document), "`"+family[1]+"`") {
			t.Errorf("/metrics has %s, the document does not", family[1])
		}
	}
}
