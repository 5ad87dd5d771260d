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

// answering is how many lanes of a page answer requests: one for each algorithm, with slots and without, one with two
// limits, and one for each outage policy. Two more lanes have several processes, and one has leases.
var answering = len(limits.Aligned()) + len(limits.Slots()) + 4

// serve starts a playground that uses the Redis of client. If client is nil, each page has an embedded Redis, as without -redis.
func serve(t *testing.T, client redis.UniversalClient) (*playground, string) {
	t.Helper()
	p, err := newPlayground(client)
	if err != nil {
		t.Fatal(err)
	}
	p.timeout = time.Minute // a busy machine may take this long
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
		t.Fatalf("opening a page: got status %d and the Content-Type %s, want 200 and text/event-stream", response.StatusCode, got)
	}
	return &page{t, response.Body, bufio.NewScanner(response.Body)}
}

// next returns the next event of a type.
func next[E event](p *page) (e E) {
	p.t.Helper()
	for p.lines.Scan() {
		name := strings.TrimPrefix(p.lines.Text(), "event: ")
		if !p.lines.Scan() {
			break
		}
		text, ok := strings.CutPrefix(p.lines.Text(), "data: ")
		if !ok || !p.lines.Scan() || p.lines.Text() != "" {
			p.t.Fatalf("got the data %q, then the line %q; want an event and an empty line", text, p.lines.Text())
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

// do sends a request as the first client.
func do(t *testing.T, method, url, body string) reply {
	t.Helper()
	return doAs(t, clientA, method, url, body)
}

// doAs sends a request as a client.
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

// TestStream opens a page, changes its configuration, and checks an event of each type.
func TestStream(t *testing.T) {
	t.Parallel()
	_, url := serve(t, embeddedRedis(t))
	p := follow(t, url, "")
	h := next[hello](p)
	if h.Config != defaults() || h.Period != 5000 || h.ID == "" || len(h.Lanes) != answering+3 {
		t.Errorf("got the event hello %+v, want the defaults, an id and %d lanes", h, answering+3)
	}
	next[changed](p)
	if r := do(t, http.MethodPut, url+"/sessions/"+h.ID, `{"shape":"steady","traffic":60}`); r.status != http.StatusNoContent {
		t.Fatalf("a change of the configuration: got status %d, want 204", r.status)
	}
	c := next[changed](p)
	if c.Config.Shape != steady || c.Config.Rate != defaults().Rate {
		t.Errorf("got the event changed %+v, want the new shape and the old rate", c)
	}
	d := next[decision](p)
	for d.At < c.At || d.Member > 0 { // skips decisions of before the change
		d = next[decision](p)
	}
	if d.Client != clientA || d.By != "traffic" || d.Used < 0 || d.Source != "redis" && d.Source != "deny_cache" {
		t.Errorf("got the decision %+v, want one by Redis on the traffic of the first client", d)
	}
	for n := (counted{}); n.Leased == 0; {
		if n = next[counted](p); n.Lane != "lease" || n.Other > 0 {
			t.Errorf("got the event counted %+v, want one of the lane lease, without decisions by the outage policy", n)
		}
	}
	r := next[response](p)
	if r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests || len(r.Header) < 4 || r.Body == "" {
		t.Errorf("got the response %+v, want 200 or 429 with headers and a body", r)
	}
	l := next[levels](p)
	if len(l.Levels) != answering+2 || l.Levels["gcra"].At == 0 {
		t.Errorf("got the event levels %+v, want %d lanes", l, answering+2)
	}
}

// TestTwoLimits sends requests until the second of two limits denies one, and checks that the decision says which limit denied.
func TestTwoLimits(t *testing.T) {
	t.Parallel()
	_, url := serve(t, embeddedRedis(t))
	p := follow(t, url, "shape=hand&rate=2&burst=20") // the second limit admits 3 in 15 s
	h := next[hello](p)
	for n := 1; n <= 4; n++ {
		r := do(t, http.MethodPost, url+"/hit/two_limits?session="+h.ID, "")
		if (r.status == http.StatusOK) != (n <= 3) {
			t.Errorf("request %d: got status %d, want 200 only for the first 3", n, r.status)
		}
		d := next[decision](p)
		for d.Lane != "two_limits" {
			d = next[decision](p)
		}
		if want := float64(min(n, 3)) / 3; d.Also != want || d.Used == 0 || d.Second != (n > 3) {
			t.Errorf("request %d: got the decision %+v, want %v of the second limit used", n, d, want)
		}
	}
}

// TestHit sends requests by hand: each lane must decide on each of them once, and there must be a limit for them.
func TestHit(t *testing.T) {
	t.Parallel()
	play, url := serve(t, embeddedRedis(t))
	play.hands = core.MustNewMemory("hands", core.GCRA(core.PerHour(1), core.Burst(maxTraffic)))
	p := follow(t, url, "")
	h := next[hello](p)
	do(t, http.MethodPut, url+"/sessions/"+h.ID, `{"shape":"hand"}`)
	r := do(t, http.MethodPost, url+"/hit/token_bucket?session="+h.ID, "")
	if r.status != http.StatusOK || r.header.Get("X-RateLimit-Limit") != "10" || r.header.Get("X-RateLimit-Remaining") != "9" {
		t.Errorf("got status %d and the headers %v, want 200 with 9 of 10 left", r.status, r.header)
	}
	decided := map[string]int{}
	for len(decided) < answering {
		if d := next[decision](p); d.By == "hand" {
			decided[d.Lane]++
		}
	}
	for lane, n := range decided {
		if n != 1 {
			t.Errorf("the lane %s decided %d times on one request, want once", lane, n)
		}
	}
	if r := do(t, http.MethodPost, url+"/hit?session="+h.ID, ""); r.status != http.StatusAccepted {
		t.Errorf("a request without a lane: got status %d, want 202", r.status)
	}
	for n := 3; n <= maxTraffic+2; n++ {
		r := do(t, http.MethodPost, url+"/hit?session="+h.ID, "")
		if want := n <= maxTraffic; (r.status == http.StatusAccepted) != want {
			t.Errorf("request %d by hand: got status %d, want 202 only for the first %d", n, r.status, maxTraffic)
		}
	}
}

// TestWrongRequests checks the answers to requests that a page does not send.
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
			t.Errorf("%s %.60s: got status %d, %s; want %d with %q", test.method, test.path, r.status, r.body, test.status, test.says)
		}
	}
	if r := doAs(t, "somebody", http.MethodPost, url+"/hit/gcra?session="+h.ID, ""); r.status != http.StatusBadRequest {
		t.Errorf("an unknown client: got status %d, %s; want 400", r.status, r.body)
	}
}

// TestPageIsStrict checks that the page may load files of its own server only.
func TestPageIsStrict(t *testing.T) {
	t.Parallel()
	_, url := serve(t, embeddedRedis(t))
	r := do(t, http.MethodGet, url+"/", "")
	if r.status != http.StatusOK || !strings.Contains(r.body, "<!doctype html>") {
		t.Errorf("got status %d, want 200 with a page", r.status)
	}
	got := r.header.Get("Content-Security-Policy")
	if !strings.Contains(got, "default-src 'none'") || strings.Contains(got, "unsafe") {
		t.Errorf("got the Content-Security-Policy %s, want default-src 'none' and nothing unsafe", got)
	}
	for _, load := range regexp.MustCompile(`(?:src|<link[^>]*href)="([^"]+)"`).FindAllStringSubmatch(r.body, -1) {
		if strings.Contains(load[1], "//") {
			t.Errorf("the page loads %s from another server, want only files of its own", load[1])
		}
	}
}

// TestOtherSites sends requests that pages of other sites can make a browser send: such a page must not open a session, and must not
// read anything under a host name of its own.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	p, _ := serve(t, embeddedRedis(t))
	h := noNames(p.routes(), "demo.example")
	for _, c := range []struct {
		path, host, site, origin string
		want                     int
	}{
		{"/events?rate=no", "127.0.0.1:8080", "cross-site", "", http.StatusForbidden}, // as an image
		{"/events?rate=no", "127.0.0.1:8080", "cross-site", "http://evil.example", http.StatusForbidden},
		{"/events?rate=no", "127.0.0.1:8080", "", "http://evil.example", http.StatusForbidden},
		{"/events?rate=no", "127.0.0.1:8080", "same-origin", "", http.StatusBadRequest}, // the server has read the query
		{"/events?rate=no", "localhost:8080", "none", "", http.StatusBadRequest},
		{"/events?rate=no", "127.0.0.1:8080", "", "", http.StatusBadRequest}, // curl
		{"/", "127.0.0.1:8080", "cross-site", "", http.StatusOK},             // as a link
		{"/", "localhost", "none", "", http.StatusOK},
		{"/", "[::1]:8080", "none", "", http.StatusOK},
		{"/", "[::1]", "none", "", http.StatusOK},
		{"/", "demo.example:8080", "none", "", http.StatusOK}, // the name of the machine
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
			t.Errorf("%+v: got status %d, %s", c, w.Code, w.Body)
		}
	}
}

// TestNothingIsLeft closes pages while leaky buckets hold requests, and checks that no
// goroutine is left. It counts the goroutines of the process, so it is not
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
		t.Errorf("%d sessions and %d goroutines are left, want none and %d\n%s", p.open(), goroutines(), before, stacks[:runtime.Stack(stacks, true)])
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

// TestSessionsAreBounded opens as many pages as allowed, and one more, which must be refused.
func TestSessionsAreBounded(t *testing.T) {
	p, url := serve(t, embeddedRedis(t))
	for range maxSessions {
		follow(t, url, "shape=hand&rate=2") // with little work
	}
	r := do(t, http.MethodGet, url+"/events", "")
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || p.open() > maxSessions {
		t.Errorf("one more page: got status %d and %d sessions, want 503 with Retry-After, and at most %d", r.status, p.open(), maxSessions)
	}
}

func (p *playground) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions)
}
