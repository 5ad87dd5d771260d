package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// answering is how many lanes of a page answer requests: one for each algorithm, with slots and without, one of two
// limits, and one for each outage policy. Two more have several processes, and one has leases.
var answering = len(limits.Aligned()) + len(limits.Slots()) + 4

// serve starts a playground over a Redis, or as main does without -redis if it is nil.
func serve(t *testing.T, client redis.UniversalClient) (*playground, string) {
	t.Helper()
	p, err := newPlayground(client)
	if err != nil {
		t.Fatal(err)
	}
	p.timeout = time.Minute // so long a busy machine may take
	server := httptest.NewServer(p.routes())
	t.Cleanup(server.Close)
	return p, server.URL
}

// A page is an open stream of events.
type page struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

// follow opens a page with a configuration, such as "rate=20".
func follow(t *testing.T, url, query string) *page {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/events?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("status %d, %s", response.StatusCode, got)
	}
	return &page{t, response.Body, bufio.NewScanner(response.Body)}
}

// next reads the next event of a type.
func next[E event](p *page) (e E) {
	p.t.Helper()
	for p.lines.Scan() {
		name := strings.TrimPrefix(p.lines.Text(), "event: ")
		if !p.lines.Scan() {
			break
		}
		text, ok := strings.CutPrefix(p.lines.Text(), "data: ")
		if !ok || !p.lines.Scan() || p.lines.Text() != "" {
			p.t.Fatalf("not an event: %q, then %q", text, p.lines.Text())
		}
		if name != e.name() {
			continue
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			p.t.Fatal(err)
		}
		return e
	}
	p.t.Fatalf("the stream ended before an event %q: %v", e.name(), p.lines.Err())
	return e
}

// A reply is a response whose body has been read.
type reply struct {
	status int
	header http.Header
	body   string
}

func do(t *testing.T, method, url, body string) reply {
	t.Helper()
	return doAs(t, clientA, method, url, body)
}

func doAs(t *testing.T, client, method, url, body string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(clientHeader, client)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, string(text)}
}

func TestStream(t *testing.T) {
	t.Parallel()
	_, url := serve(t, embeddedRedis(t))
	p := follow(t, url, "")
	h := next[hello](p)
	if h.Config != defaults() || h.Period != 5000 || h.ID == "" || len(h.Lanes) != answering+3 {
		t.Errorf("hello: %+v", h)
	}
	next[changed](p)
	if r := do(t, http.MethodPut, url+"/sessions/"+h.ID, `{"shape":"steady","traffic":60}`); r.status != http.StatusNoContent {
		t.Fatalf("status %d", r.status)
	}
	c := next[changed](p)
	if c.Config.Shape != steady || c.Config.Rate != defaults().Rate {
		t.Errorf("changed: %+v", c)
	}
	d := next[decision](p)
	for d.At < c.At || d.Member > 0 { // some were under way
		d = next[decision](p)
	}
	if d.Client != clientA || d.By != "traffic" || d.Used < 0 || d.Source != "redis" && d.Source != "deny_cache" {
		t.Errorf("decision: %+v", d)
	}
	for n := (counted{}); n.Leased == 0; {
		if n = next[counted](p); n.Lane != "lease" || n.Other > 0 {
			t.Errorf("counted: %+v", n)
		}
	}
	r := next[response](p)
	if r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests || len(r.Header) < 4 || r.Body == "" {
		t.Errorf("response: %+v", r)
	}
	l := next[levels](p)
	if len(l.Levels) != answering+2 || l.Levels["gcra"].At == 0 {
		t.Errorf("levels: %+v", l)
	}
}

// TestTwoLimits sends requests until the second limit denies one: the page is told which.
func TestTwoLimits(t *testing.T) {
	t.Parallel()
	_, url := serve(t, embeddedRedis(t))
	p := follow(t, url, "shape=hand&rate=2&burst=20") // the second admits 3 in 15 s
	h := next[hello](p)
	for n := 1; n <= 4; n++ {
		r := do(t, http.MethodPost, url+"/hit/two_limits?session="+h.ID, "")
		if (r.status == http.StatusOK) != (n <= 3) {
			t.Errorf("request %d: status %d", n, r.status)
		}
		d := next[decision](p)
		for d.Lane != "two_limits" {
			d = next[decision](p)
		}
		if want := float64(min(n, 3)) / 3; d.Also != want || d.Used == 0 || d.Second != (n > 3) {
			t.Errorf("request %d: %+v", n, d)
		}
	}
}

func TestHit(t *testing.T) {
	t.Parallel()
	play, url := serve(t, embeddedRedis(t))
	play.hands = core.MustNewMemory("hands", core.GCRA(core.PerHour(1), core.Burst(maxTraffic)))
	p := follow(t, url, "")
	h := next[hello](p)
	do(t, http.MethodPut, url+"/sessions/"+h.ID, `{"shape":"hand"}`)
	r := do(t, http.MethodPost, url+"/hit/token_bucket?session="+h.ID, "")
	if r.status != http.StatusOK || r.header.Get("X-RateLimit-Limit") != "10" || r.header.Get("X-RateLimit-Remaining") != "9" {
		t.Errorf("status %d, %v", r.status, r.header)
	}
	decided := map[string]int{}
	for len(decided) < answering {
		if d := next[decision](p); d.By == "hand" {
			decided[d.Lane]++
		}
	}
	for lane, n := range decided {
		if n != 1 {
			t.Errorf("%s decided %d times on one request", lane, n)
		}
	}
	if r := do(t, http.MethodPost, url+"/hit?session="+h.ID, ""); r.status != http.StatusAccepted {
		t.Errorf("without a lane: status %d", r.status)
	}
	for n := 3; n <= maxTraffic+2; n++ {
		r := do(t, http.MethodPost, url+"/hit?session="+h.ID, "")
		if want := n <= maxTraffic; (r.status == http.StatusAccepted) != want {
			t.Errorf("request %d by hand: status %d", n, r.status)
		}
	}
}

func TestWrongRequests(t *testing.T) {
	t.Parallel()
	_, url := serve(t, embeddedRedis(t))
	p := follow(t, url, "")
	h := next[hello](p)
	for _, test := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{http.MethodPut, "/sessions/" + h.ID, `{"rate":1000}`, http.StatusBadRequest, "rate is 1000: allowed is 2 to 40"},
		{http.MethodPut, "/sessions/" + h.ID, `{"shape":"` + strings.Repeat("x", 2*maxBody) + `"}`, http.StatusBadRequest, "too large"},
		{http.MethodPut, "/sessions/another", `{}`, http.StatusNotFound, "no such session"},
		{http.MethodPost, "/hit/gcra?session=another", "", http.StatusNotFound, "no such session"},
		{http.MethodPost, "/hit/fair?session=" + h.ID, "", http.StatusNotFound, "no such lane"},
		{http.MethodGet, "/hit/gcra?session=" + h.ID, "", http.StatusNotFound, ""},
		{http.MethodGet, "/nothing", "", http.StatusNotFound, ""},
		{http.MethodGet, "/events?rate=1000", "", http.StatusBadRequest, "rate is 1000: allowed is 2 to 40"},
		{http.MethodGet, "/events?rate=ten", "", http.StatusBadRequest, `rate is "ten": want a number`},
		{http.MethodGet, "/events?shape=square", "", http.StatusBadRequest, `shape is "square"`},
		{http.MethodPost, "/sessions/another/redis/stop", "", http.StatusNotFound, "no such session"},
		{http.MethodPost, "/sessions/" + h.ID + "/redis/flush", "", http.StatusNotFound, "allowed are stop and start"},
	} {
		if r := do(t, test.method, url+test.path, test.body); r.status != test.status || !strings.Contains(r.body, test.says) {
			t.Errorf("%s %.60s: status %d, %s", test.method, test.path, r.status, r.body)
		}
	}
	if r := doAs(t, "somebody", http.MethodPost, url+"/hit/gcra?session="+h.ID, ""); r.status != http.StatusBadRequest {
		t.Errorf("another client: status %d, %s", r.status, r.body)
	}
}

func TestPageIsStrict(t *testing.T) {
	t.Parallel()
	_, url := serve(t, embeddedRedis(t))
	r := do(t, http.MethodGet, url+"/", "")
	if r.status != http.StatusOK || !strings.Contains(r.body, "<!doctype html>") {
		t.Errorf("status %d", r.status)
	}
	got := r.header.Get("Content-Security-Policy")
	if !strings.Contains(got, "default-src 'none'") || strings.Contains(got, "unsafe") {
		t.Errorf("Content-Security-Policy: %s", got)
	}
	for _, load := range regexp.MustCompile(`(?:src|<link[^>]*href)="([^"]+)"`).FindAllStringSubmatch(r.body, -1) {
		if strings.Contains(load[1], "//") {
			t.Errorf("the page loads %s from another server", load[1])
		}
	}
}

// TestOtherSites has pages of other sites ask in the name of the user's browser: they open no session, and read nothing
// under a name of their own.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	p, _ := serve(t, embeddedRedis(t))
	h := noNames(p.routes(), "demo.example")
	for _, c := range []struct {
		path, host, site, origin string
		want                     int
	}{
		{"/events?rate=no", "127.0.0.1:8080", "cross-site", "", http.StatusForbidden}, // an image
		{"/events?rate=no", "127.0.0.1:8080", "cross-site", "http://evil.example", http.StatusForbidden},
		{"/events?rate=no", "127.0.0.1:8080", "", "http://evil.example", http.StatusForbidden},
		{"/events?rate=no", "127.0.0.1:8080", "same-origin", "", http.StatusBadRequest}, // which it has read
		{"/events?rate=no", "localhost:8080", "none", "", http.StatusBadRequest},
		{"/events?rate=no", "127.0.0.1:8080", "", "", http.StatusBadRequest}, // curl
		{"/", "127.0.0.1:8080", "cross-site", "", http.StatusOK},             // a link
		{"/", "localhost", "none", "", http.StatusOK},
		{"/", "[::1]:8080", "none", "", http.StatusOK},
		{"/", "[::1]", "none", "", http.StatusOK},
		{"/", "demo.example:8080", "none", "", http.StatusOK}, // its own name
		{"/", "demo.example.evil.example", "none", "", http.StatusForbidden},
		{"/", "", "none", "", http.StatusForbidden},
		{"/", "evil.example:8080", "same-origin", "", http.StatusForbidden},
		{"/events?rate=no", "evil.example", "same-origin", "", http.StatusForbidden},
		{"/", "127.0.0.1.evil.example:8080", "same-origin", "", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Host = c.host
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Origin": c.origin} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%+v: status %d, %s", c, w.Code, w.Body)
		}
	}
}

// TestNothingIsLeft closes pages while leaky buckets hold requests, and checks that no
// goroutine is left over. It looks at all goroutines of the process, so it is not
// parallel.
func TestNothingIsLeft(t *testing.T) {
	p, url := serve(t, embeddedRedis(t))
	before := goroutines()
	for range 3 {
		page := follow(t, url, "")
		h := next[hello](page)
		do(t, http.MethodPut, url+"/sessions/"+h.ID, `{"shape":"steady","traffic":60,"rate":2,"burst":20}`)
		for held := 0; held < 5; {
			if d := next[decision](page); d.Delay > 0 {
				held++
			}
		}
		_ = page.body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	if !check.Eventually(t, "sessions and goroutines end", func() bool { return p.open() == 0 && goroutines() <= before }) {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d sessions, %d goroutines, %d before\n%s", p.open(), goroutines(), before, stacks[:runtime.Stack(stacks, true)])
	}
}

// goroutines returns how many goroutines run code of the playground.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	n := 0
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "main.(*session)") || strings.Contains(stack, "main.(*playground)") || strings.Contains(stack, "main.(*lane)") {
			n++
		}
	}
	return n
}

func TestSessionsAreBounded(t *testing.T) {
	p, url := serve(t, embeddedRedis(t))
	for range maxSessions {
		follow(t, url, "shape=hand&rate=2") // with little to do
	}
	r := do(t, http.MethodGet, url+"/events", "")
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || p.open() > maxSessions {
		t.Errorf("one more: status %d, %d sessions", r.status, p.open())
	}
}

func (p *playground) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}
