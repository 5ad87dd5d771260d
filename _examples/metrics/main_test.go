package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

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
	rdb := connect("redis://" + redis.Addr())
	t.Cleanup(func() { _ = rdb.Close() })
	s = server{httptest.NewServer(routes(rdb, metrics, telemetry)), t}
	t.Cleanup(s.Close)
	return s, redis.Close
}

// get requests a path, as a user unless user is empty.
func (s server) get(path, user, password string) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(s.t.Context()), http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, password)
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
		_, _ = s.get(path, user, "x")
	}
}

// ban has a user send wrong passwords until he is banned. Until what he sent before has been counted, he is only denied.
func (s server) ban(user string) {
	s.t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if _, body := s.get("/login", user, "x"); strings.Contains(body, "abnormal-usage") {
			return
		}
	}
	s.t.Error("nobody is banned")
}

// TestDocument compares docs/metrics.md with /metrics: every metric and label that the
// document names, in Prometheus's spelling and in OpenTelemetry's, is served, and every
// metric that is served is named, in the latter. What the metrics count is tested in package otel; no key is
// among them.
func TestDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := run(t)
	s.times(7, "/user", "alice")
	s.times(1, "/key", "")
	_, _ = s.get("/login", "alice", "secret") // it does not count
	s.times(2, "/queue", "")                  // the second waits
	s.ban("alice")
	stop()
	s.times(3, "/user", "bob")
	_, served := s.get("/metrics", "", "")
	for _, key := range []string{"alice", "bob", "127.0.0.1"} {
		if strings.Contains(served, key) {
			t.Errorf("/metrics contains %s", key)
		}
	}

	names := regexp.MustCompile(`\bredislimit_\w+`).FindAllString(string(document), -1)
	dotted := regexp.MustCompile("`(redislimit(?:\\.[a-z_]+)+)`").FindAllStringSubmatch(string(document), -1)
	if len(names) < 10 || len(dotted) < 10 {
		t.Fatalf("too few names found: %v, %v", names, dotted)
	}
	for _, name := range names {
		if regexp.MustCompile(`^redislimit_(slots|lease|overload)_`).MatchString(name) {
			continue // of InFlight and Lease, which the app does not use, and of overloads; otel's tests have them
		}
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(served) {
			t.Errorf("the document has %s, /metrics does not", name)
		}
	}
	for _, name := range dotted {
		if name[1] == "redislimit.limit.capacity" || name[1] == "redislimit.limit.remaining" ||
			regexp.MustCompile(`^redislimit\.(slots|lease|overload)\b`).MatchString(name[1]) {
			continue // attributes of spans only, and metrics of InFlight, Lease and overloads only
		}
		if !strings.Contains(served, strings.ReplaceAll(name[1], ".", "_")) {
			t.Errorf("the document has %s, /metrics does not have it", name[1])
		}
	}
	for _, family := range regexp.MustCompile(`# TYPE (redislimit_\w+)`).FindAllStringSubmatch(served, -1) {
		instrument := strings.TrimSuffix(strings.TrimSuffix(family[1], "_total"), "_seconds")
		if !strings.Contains(string(document), "`"+strings.ReplaceAll(instrument, "_", ".")+"`") {
			t.Errorf("/metrics has %s, the document does not", family[1])
		}
	}
}
