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

// A server is the example, running in the process of the test.
type server struct {
	*httptest.Server

	t *testing.T
}

// run runs the example with an embedded Redis. The function stop stops that Redis.
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

// get requests a path, and sends the user and the password unless user is empty.
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

// ban sends wrong passwords of a user until the user is banned. A failed login is counted in the background, so that the first requests above
// the limit may only be denied.
func (s server) ban(user string) {
	s.t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if _, body := s.get("/login", user, "x"); strings.Contains(body, "abnormal-usage") {
			return
		}
	}
	s.t.Error("no answer says that the client is banned")
}

// TestDocument compares docs/metrics.md with /metrics: every metric and label that the
// document names, as Prometheus and as OpenTelemetry spell it, must be served, and every
// metric that is served must be in the document, as OpenTelemetry spells it. No user's key may be served. Package
// otel tests what the metrics count.
func TestDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := run(t)
	s.times(7, "/user", "alice")
	s.times(1, "/key", "")
	_, _ = s.get("/login", "alice", "secret") // a right password is not counted
	s.times(2, "/queue", "")                  // the second request waits
	s.ban("alice")
	stop()
	s.times(3, "/user", "bob")
	_, served := s.get("/metrics", "", "")
	for _, key := range []string{"alice", "bob", "127.0.0.1"} {
		if strings.Contains(served, key) {
			t.Errorf("/metrics contains the key %s", key)
		}
	}

	names := regexp.MustCompile(`\bredislimit_\w+`).FindAllString(string(document), -1)
	dotted := regexp.MustCompile("`(redislimit(?:\\.[a-z_]+)+)`").FindAllStringSubmatch(string(document), -1)
	if len(names) < 10 || len(dotted) < 10 {
		t.Fatalf("got the names %v and %v in the document, want at least 10 of each", names, dotted)
	}
	for _, name := range names {
		if regexp.MustCompile(`^redislimit_(slots|lease|overload)_`).MatchString(name) {
			continue // metrics of InFlight and Lease, which the app does not use, and of overloads: package otel tests them
		}
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(served) {
			t.Errorf("the document names %s, which is not in /metrics", name)
		}
	}
	for _, name := range dotted {
		if name[1] == "redislimit.limit.capacity" || name[1] == "redislimit.limit.remaining" ||
			regexp.MustCompile(`^redislimit\.(slots|lease|overload)\b`).MatchString(name[1]) {
			continue // attributes of spans, and metrics of InFlight, Lease and overloads
		}
		if !strings.Contains(served, strings.ReplaceAll(name[1], ".", "_")) {
			t.Errorf("the document names %s, which is not in /metrics", name[1])
		}
	}
	for _, family := range regexp.MustCompile(`# TYPE (redislimit_\w+)`).FindAllStringSubmatch(served, -1) {
		instrument := strings.TrimSuffix(strings.TrimSuffix(family[1], "_total"), "_seconds")
		if !strings.Contains(string(document), "`"+strings.ReplaceAll(instrument, "_", ".")+"`") {
			t.Errorf("/metrics has %s, which is not in the document", family[1])
		}
	}
}
