package admin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/admin"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/keyfunc"
)

func everybody(*http.Request) bool { return true }

// page returns the handler of a page of limiters that everybody may see, and its Watch.
func page(lims ...*core.Limiter) (http.Handler, *admin.Watch) {
	watch := admin.NewWatch()
	watch.Add(lims...)
	return admin.Handler(everybody, watch), watch
}

// send sends a request as the page does, with additional headers, given as names and values.
func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://admin.test/limits/"+path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A state is the handler's answer about a key.
type state struct {
	Key         string    `json:"key"`
	Source      string    `json:"source"`
	Allowed     bool      `json:"allowed"`
	RetryAfter  float64   `json:"retryAfter"`
	BannedUntil time.Time `json:"bannedUntil"`
	Limits      []struct {
		Limit     string `json:"limit"`
		Allowed   bool   `json:"allowed"`
		Unlimited bool   `json:"unlimited"`
		Capacity  int64  `json:"capacity"`
		Remaining int64  `json:"remaining"`
		Held      int64  `json:"held"`
	} `json:"limits"`
}

// do posts an action, and returns the state of the key from the answer.
func do(t *testing.T, h http.Handler, what, body string) (s state) {
	t.Helper()
	w := send(h, http.MethodPost, what, body)
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s %s: %d %s", what, body, w.Code, w.Body)
	}
	return s
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

var (
	files   = []string{"", "app.js", "style.css", "palette.css", "icon.svg", "data.json"}
	actions = []string{"lookup", "reset", "block", "unblock"}
)

const (
	alice = `{"limiter":"api","key":"alice","for":"1h"}`
	bob   = `{"limiter":"api","key":"bob"}`
)

// TestAllow checks that no data is shown and no action is done if the function allow returns false, and that Handler and Watch panic
// if an argument is nil.
func TestAllow(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(5)), core.Ban())
	_, watch := page(lim)
	h := admin.Handler(func(r *http.Request) bool { return r.Header.Get("Session") == "admin" }, watch)
	for _, path := range append(slices.Concat(files, actions), "other") {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions} {
			if w := send(h, method, path, alice); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), "api") {
				t.Errorf("%s %s without a session: got %d %s, want 403 without the limiter's name", method, path, w.Code, w.Body)
			}
		}
	}
	if res, err := lim.Peek(t.Context(), "alice"); err != nil || res.Banned {
		t.Errorf("got %+v, %v; want the key not banned", res, err)
	}
	if w := send(h, http.MethodGet, "data.json", "", "Session", "admin"); w.Code != http.StatusOK {
		t.Errorf("with a session: got %d %s, want 200", w.Code, w.Body)
	}
	for text, make := range map[string]func(){
		"who may see":           func() { admin.Handler(nil, watch) },
		"the Watch is nil":      func() { admin.Handler(everybody, nil) },
		"a Limiter is nil":      func() { watch.Add(nil) },
		"a label and a functio": func() { watch.LookUp("x", nil) },
	} {
		func() {
			defer func() {
				if value, _ := recover().(string); !strings.Contains(value, text) {
					t.Errorf("got the panic %q, want one that contains %q", value, text)
				}
			}()
			make()
		}()
	}
}

// TestHeaders checks the headers that protect each file from other pages and caches, and that no other path is served.
func TestHeaders(t *testing.T) {
	t.Parallel()
	h, _ := page()
	for _, path := range files {
		w := send(h, http.MethodGet, path, "")
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Errorf("%q: got status %d and %d bytes, want 200 and some", path, w.Code, w.Body.Len())
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); !strings.Contains(got, want) {
				t.Errorf("%q: the header %s is %q, want %q in it", path, name, got, want)
			}
		}
		if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%q: the Content-Security-Policy is %s, want default-src 'none' and nothing unsafe", path, policy)
		}
	}
	for _, path := range []string{"other", "web", "web/index.html/x", "..%2fadmin.go", "x/..", "x/."} {
		if w := send(h, http.MethodGet, path, ""); w.Code != http.StatusNotFound || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: got status %d and the headers %v, want 404 and no-store", path, w.Code, w.Header())
		}
	}
}

// TestOtherSites sends the requests that a page of another site can make a browser send: they must not change a key, whatever the page
// knows.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(5)), core.Ban())
	h, _ := page(lim)
	_, err := lim.AllowN(t.Context(), "alice", 3)
	must(t, err, lim.Block(t.Context(), "bob", time.Hour))
	for _, what := range actions {
		body := alice
		if what == "unblock" {
			body = bob
		}
		for name, request := range map[string]struct {
			method  string
			headers []string
			status  int
		}{
			"GET":                   {http.MethodGet, nil, http.StatusMethodNotAllowed},
			"HEAD":                  {http.MethodHead, nil, http.StatusMethodNotAllowed},
			"PUT":                   {http.MethodPut, nil, http.StatusMethodNotAllowed},
			"another site":          {http.MethodPost, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
			"another subdomain":     {http.MethodPost, []string{"Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
			"another origin":        {http.MethodPost, []string{"Sec-Fetch-Site", "", "Origin", "http://evil.test"}, http.StatusForbidden},
			"an opaque origin":      {http.MethodPost, []string{"Sec-Fetch-Site", "", "Origin", "null"}, http.StatusForbidden},
			"a form":                {http.MethodPost, []string{"Content-Type", "application/x-www-form-urlencoded"}, http.StatusUnsupportedMediaType},
			"a form with text":      {http.MethodPost, []string{"Content-Type", "text/plain"}, http.StatusUnsupportedMediaType},
			"no type at all":        {http.MethodPost, []string{"Content-Type", ""}, http.StatusUnsupportedMediaType},
			"a form of a new sort":  {http.MethodPost, []string{"Content-Type", "multipart/form-data; boundary=x"}, http.StatusUnsupportedMediaType},
			"a type that is broken": {http.MethodPost, []string{"Content-Type", "application/json; x"}, http.StatusUnsupportedMediaType},
		} {
			if w := send(h, request.method, what+"?limiter=api&key=alice", body, request.headers...); w.Code != request.status {
				t.Errorf("%s by %s: got %d %s, want status %d", what, name, w.Code, w.Body, request.status)
			}
		}
	}
	if res, err := lim.Peek(t.Context(), "alice"); err != nil || res.Banned || res.Remaining != 2 {
		t.Errorf("alice: got %+v, %v; want 2 units left and no ban", res, err)
	}
	if res, err := lim.Peek(t.Context(), "bob"); err != nil || !res.Banned {
		t.Errorf("bob: got %+v, %v; want the ban unchanged", res, err)
	}
}

// TestMistakes posts requests with mistakes, and checks that the answer names the mistake.
func TestMistakes(t *testing.T) {
	t.Parallel()
	h, _ := page(core.MustNewMemory("api", core.FixedWindow(core.PerHour(5))), core.MustNewMemory("bans", core.FixedWindow(core.PerHour(5)), core.Ban()))
	for _, test := range []struct {
		what, body string
		status     int
		says       string
	}{
		{"lookup", `{"limiter":"other","key":"x"}`, 404, "other"},
		{"lookup", `{"limiter":"api"}`, 400, "no key"},
		{"lookup", `{"limiter":"api","kee":"x"}`, 400, "kee"},
		{"lookup", `{`, 400, "unexpected EOF"},
		{"lookup", `{"limiter":"api","key":"` + strings.Repeat("x", 1<<20) + `"}`, 400, "too large"},
		{"lookup", `{"limiter":"api","parts":[{"by":"shoe size","value":"46"}]}`, 400, "shoe size"},
		{"lookup", `{"limiter":"api","parts":[{"by":"ip","value":"nowhere"}]}`, 400, "nowhere"},
		{"lookup", `{"limiter":"api","parts":[{"by":"user","value":""}]}`, 400, "the value is empty"},
		{"lookup", `{"limiter":"api","parts":[{"by":"cookie","value":"x"}]}`, 400, "want a name"},
		{"lookup", `{"limiter":"api","parts":[{"by":"header","name":"X-Forwarded-For","value":"x"}]}`, 400, "any address"},
		{"block", alice, 400, "without the option Ban"},
		{"block", `{"limiter":"bans","key":"x"}`, 400, "duration"},
		{"block", `{"limiter":"bans","key":"x","for":"-1s"}`, 400, "allowed is"},
		{"block", `{"limiter":"bans","key":"x","for":"9000h"}`, 400, "allowed is"},
	} {
		w := send(h, http.MethodPost, test.what, test.body)
		var got struct {
			Error string `json:"error"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != test.status || !strings.Contains(got.Error, test.says) {
			t.Errorf("%s %.80s: got %d %s, want %d with %q", test.what, test.body, w.Code, w.Body, test.status, test.says)
		}
	}
}

// TestLookUp looks up keys by their parts, and compares them with the keys that package keyfunc makes. A key that is no valid text is
// looked up by its bytes.
func TestLookUp(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(5)))
	h, watch := page(lim)
	secret := keyfunc.Secret("pepper, 16 bytes or more")
	watch.LookUp("our key", func(value string) string { return keyfunc.ForAPIKey(value, secret) })
	addr, addr6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:1:2:3::4")
	for parts, want := range map[string]string{
		`{"by":"key","value":"any thing"}`:                             "any thing",
		`{"by":"our key","value":"s3cret"}`:                            keyfunc.ForAPIKey("s3cret", secret),
		`{"by":"apikey","value":"s3cret"}`:                             keyfunc.ForAPIKey("s3cret"),
		`{"by":"bearer","value":"s3cret"}`:                             keyfunc.ForBearer("s3cret"),
		`{"by":"cookie","name":"session","value":"s3cret"}`:            keyfunc.ForCookie("session", "s3cret"),
		`{"by":"query","name":"api_key","value":"s3cret"}`:             keyfunc.ForQuery("api_key", "s3cret"),
		`{"by":"header","name":"x-tenant","value":"acme"}`:             keyfunc.ForHeader("X-Tenant", "acme"),
		`{"by":"basic","value":"alice"}`:                               keyfunc.ForBasicAuth("alice"),
		`{"by":"user","value":"alice"}`:                                keyfunc.ForUser("alice"),
		`{"by":"route","value":"/users/{id}"}`:                         keyfunc.ForRoute("/users/{id}"),
		`{"by":"method","value":"POST"}`:                               keyfunc.ForMethod("POST"),
		`{"by":"global"}`:                                              keyfunc.ForGlobal(),
		`{"by":"peer","value":"192.0.2.1"}`:                            keyfunc.ForPeer(addr),
		`{"by":"ip","value":"192.0.2.1"}`:                              keyfunc.ForIP(addr),
		`{"by":"ip","value":"192.0.2.1/24"}`:                           keyfunc.ForIP(addr, keyfunc.IPv4Prefix(24)),
		`{"by":"ip","value":"2001:db8:1:2:3::4"}`:                      keyfunc.ForIP(addr6),
		`{"by":"ip","value":"2001:db8:1:2:3::4/56"}`:                   keyfunc.ForIP(addr6, keyfunc.IPv6Prefix(56)),
		`{"by":"ip","value":"192.0.2.1"},{"by":"user","value":"a,b%"}`: keyfunc.ForJoin(keyfunc.ForIP(addr), keyfunc.ForUser("a,b%")),
	} {
		_, err := lim.AllowN(t.Context(), want, 5)
		must(t, err)
		if s := do(t, h, "lookup", `{"limiter":"api","parts":[`+parts+`]}`); s.Key != want || s.Allowed || s.RetryAfter <= 0 {
			t.Errorf("%s: got %+v, want the key %q denied", parts, s, want)
		}
		must(t, lim.Reset(t.Context(), want))
	}
	const bytes = "\xff\xfe\x00"
	_, err := lim.AllowN(t.Context(), bytes, 5)
	must(t, err)
	if s := do(t, h, "reset", `{"limiter":"api","id":"//4A"}`); !s.Allowed {
		t.Errorf("reset of a key by its bytes: got %+v, want it allowed", s)
	}
	if res, err := lim.Peek(t.Context(), bytes); err != nil || res.Remaining != 5 {
		t.Errorf("got %+v, %v; want 5 left", res, err)
	}
}

// TestActions looks up and changes keys with used units, held units and bans, in memory and in Redis.
func TestActions(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		changes(t, core.MustNewMemory, "memory")
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		client := redistest.Server(t).Client(t)
		changes(t, func(name string, opts ...core.Option) *core.Limiter {
			return core.MustNew(client, name, append(opts, core.FailClosed(), core.Timeout(time.Minute))...)
		}, "redis")
	})
}

// TestUnlimited looks up keys that have a limit of 0 or no limit, alone and beside other limits, and blocks them.
func TestUnlimited(t *testing.T) {
	t.Parallel()
	fixed := core.FixedWindow(core.PerHour(10))
	for name, c := range map[string]struct {
		limits  []core.Limit
		allowed bool
		retry   float64
		want    string
		blocked string
	}{
		"alone":  {[]core.Limit{core.Unlimited()}, true, 0, "[unlimited: admits]", "[unlimited: denies]"},
		"beside": {[]core.Limit{core.Unlimited(), fixed}, true, 0, "[unlimited: admits, fixed_window 10/1h: admits 10 of 10]", "[unlimited: denies, fixed_window 10/1h: denies 0 of 10]"},
		"of 0": {
			[]core.Limit{fixed, core.Unlimited(), core.TokenBucket(core.PerDay(0))}, false, -1, "[unlimited: admits, token_bucket 0/1d: denies 0 of 0]",
			"[fixed_window 10/1h: denies 0 of 10, unlimited: denies, token_bucket 0/1d: denies 0 of 0]",
		},
	} {
		lim, err := core.MustNewMemory("api", fixed, core.Ban()).With(c.limits...)
		must(t, err)
		h, _ := page(lim)
		shown := func(what string) string {
			var all []string
			s := do(t, h, what, alice)
			for _, l := range s.Limits {
				words := l.Limit + ": " + map[bool]string{true: "admits", false: "denies"}[l.Allowed]
				if !l.Unlimited {
					words += fmt.Sprintf(" %d of %d", l.Remaining, l.Capacity)
				}
				all = append(all, words)
			}
			if what == "lookup" && (s.Allowed != c.allowed || s.RetryAfter != c.retry || s.Source != "memory") {
				t.Errorf("%s: got %+v, want allowed %t, the wait %v and the source memory", name, s, c.allowed, c.retry)
			}
			return "[" + strings.Join(all, ", ") + "]"
		}
		if got := shown("lookup"); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if got := shown("block"); got != c.blocked {
			t.Errorf("%s, blocked: got %s, want %s", name, got, c.blocked)
		}
	}
}

// changes looks up, resets, blocks and unblocks a key with charged units, held units and a slot, and checks what is logged.
func changes(t *testing.T, limiter func(name string, opts ...core.Option) *core.Limiter, source string) {
	var log check.Log
	lim := limiter("api", core.FixedWindow(core.PerHour(10)), core.InFlight(4, core.SlotTTL(time.Minute)), core.Ban(time.Hour), core.Hold(time.Hour),
		core.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	t.Cleanup(func() { _ = lim.Close() })
	h, _ := page(lim)
	ctx := t.Context()
	slot, first := lim.Acquire(ctx, "alice", 1)
	held, second := lim.Reserve(ctx, "alice", 2)
	must(t, first, second)
	s := do(t, h, "lookup", alice)
	if s.Key != "alice" || s.Source != source || !s.Allowed || len(s.Limits) != 2 {
		t.Fatalf("lookup: got %+v, want alice allowed by %s, with two limits", s, source)
	}
	for i, want := range []struct {
		limit                     string
		capacity, remaining, held int64
	}{{"fixed_window 10/1h", 10, 7, 2}, {"in_flight 4 slot_ttl=1m", 4, 1, 3}} {
		if got := s.Limits[i]; got.Limit != want.limit || got.Capacity != want.capacity || got.Remaining != want.remaining || got.Held != want.held {
			t.Errorf("lookup: got the limit %+v, want %+v", got, want)
		}
	}
	must(t, held.Cancel(ctx))
	if s := do(t, h, "reset", alice); s.Limits[0].Remaining != 10 || s.Limits[0].Held != 0 || s.Limits[1].Held != 1 {
		t.Errorf("reset: got %+v, want 10 units left and only the slot held", s)
	}
	before := time.Now()
	s = do(t, h, "block", alice)
	if s.Allowed || s.RetryAfter > 3600 || s.RetryAfter < 3500 || s.BannedUntil.Before(before.Add(50*time.Minute)) {
		t.Errorf("block: got %+v, want a ban of an hour", s)
	}
	if s := do(t, h, "lookup", bob); !s.Allowed || !s.BannedUntil.IsZero() {
		t.Errorf("lookup of another key: got %+v, want it allowed", s)
	}
	if s := do(t, h, "unblock", alice); !s.Allowed || !s.BannedUntil.IsZero() {
		t.Errorf("unblock: got %+v, want it allowed", s)
	}
	must(t, slot.Release(ctx))
	var lines []string
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), "msg=")
		lines = append(lines, line)
	}
	const peer = `peer=192.0.2.1:1234 key=alice`
	if want := []string{
		`"redislimit: admin: reset" limiter=api ` + peer, `"redislimit: admin: block" limiter=api ` + peer + " for=1h0m0s",
		`"redislimit: admin: unblock" limiter=api ` + peer,
	}; !slices.Equal(lines, want) {
		t.Errorf("got the log lines %q, want %q", lines, want)
	}
}
