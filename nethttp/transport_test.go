package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

// A partner is the server to which the Transport sends. It records when requests arrive, and answers as a test says.
type partner struct {
	answer func(r *http.Request, n int) (*http.Response, error) // answers the nth request; nil: with 200

	mu     sync.Mutex
	begun  time.Time
	came   []time.Duration // when requests arrived, since begun
	bodies []string        // of the requests
	sent   []*watchedBody  // the bodies of the responses
}

func newPartner() *partner { return &partner{begun: time.Now()} }

func (p *partner) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came = append(p.came, time.Since(p.begun))
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		p.bodies = append(p.bodies, string(text))
		_ = r.Body.Close()
	}
	if p.answer == nil {
		return p.says(200), nil
	}
	return p.answer(r, len(p.came))
}

// says returns a response with a status and headers such as "Retry-After: 5".
func (p *partner) says(status int, headers ...string) *http.Response {
	body := &watchedBody{Reader: strings.NewReader("an answer")}
	p.sent = append(p.sent, body)
	return &http.Response{StatusCode: status, Header: headersOf(headers...), Body: body, ContentLength: 9}
}

// headersOf returns headers from lines such as "Retry-After: 5".
func headersOf(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

// wantClosed checks that the body of each response was closed once.
func (p *partner) wantClosed(t *testing.T) {
	t.Helper()
	for i, b := range p.sent {
		if n := b.closed.Load(); n != 1 {
			t.Errorf("the body of response %d was closed %d times, want once", i+1, n)
		}
	}
}

// A watchedBody is the body of a request or of a response, which counts how often it is closed.
type watchedBody struct {
	io.Reader

	closed atomic.Int64
}

func (b *watchedBody) Close() error { b.closed.Add(1); return nil }

// byHost returns the key of a request: its host.
func byHost(r *http.Request) string { return r.URL.Host }

// plenty is a limit that no test reaches.
func plenty() core.Limit { return core.TokenBucket(core.PerSecond(1000)) }

// withBansAndWithout runs a test with limiters that have bans, which then store how long a key is held back, and with others.
func withBansAndWithout(t *testing.T, test func(t *testing.T, limiter func(...core.Option) *core.Limiter)) {
	t.Helper()
	for name, bans := range map[string][]core.Option{"bans": {core.Ban()}, "levels": {core.Ban(time.Hour)}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test(t, func(limits ...core.Option) *core.Limiter {
					return core.MustNewMemory("partner", append(limits, bans...)...)
				})
			})
		})
	}
}

// wantLeft checks how many units or slots of the key "partner" are left.
func wantLeft(t *testing.T, what string, lim *core.Limiter, want int64) {
	t.Helper()
	if res, err := lim.Peek(t.Context(), "partner"); err != nil || res.Remaining != want {
		t.Errorf("%s: %d units are left, error %v; want %d", what, res.Remaining, err, want)
	}
}

// send returns the response to a request, whose body is not read.
func send(t *testing.T, rt http.RoundTripper) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://partner/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := rt.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// get sends a request, reads the response to its end, and returns its status.
func get(t *testing.T, ctx context.Context, rt http.RoundTripper, url string) (status int, err error) { //nolint:revive // as t is first
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := rt.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode, nil
}

// TestTransportWaits sends more requests at once than the limit allows: they must arrive at the rate of the limit, and a request whose
// turn is after its deadline must fail at once.
func TestTransportWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPartner()
		rt := Transport(core.MustNewMemory("partner", core.TokenBucket(core.PerSecond(2), core.Burst(1))), byHost, Base(p))
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if status, err := get(t, t.Context(), rt, "http://partner/"); status != 200 || err != nil {
					t.Errorf("got status %d, %v; want 200", status, err)
				}
			})
		}
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		before := time.Now()
		if _, err := get(t, brief, rt, "http://partner/"); !errors.Is(err, context.DeadlineExceeded) || time.Since(before) > 0 {
			t.Errorf("got error %v after %v, want DeadlineExceeded at once", err, time.Since(before))
		}
		calls.Wait()
		if want := []time.Duration{0, 500e6, 1000e6, 1500e6}; !slices.Equal(p.came, want) {
			t.Errorf("requests arrived after %v, want %v", p.came, want)
		}
		p.wantClosed(t)
	})
}

// TestTransportHoldsBack makes the partner answer the first request, and checks when the next request arrives: not before the time in the
// response, at most a tenth later, and never beyond the bound. It must be the same with and without bans.
func TestTransportHoldsBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		header string
		want   time.Duration
	}{
		{429, "Retry-After: 5", 5 * time.Second},
		{429, "Retry-After-Ms: 0.01", time.Millisecond},
		{429, "X-Nothing: 1", time.Second},
		{429, "Retry-After: 86400", time.Minute},
		{503, "Retry-After: 5", 5 * time.Second},
		{503, "X-Nothing: 1", 0},
		{200, "Retry-After: 5", 0},
		{403, "Retry-After: 5", 5 * time.Second},
		{403, "X-Nothing: 1", 0},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.header), func(t *testing.T) {
			withBansAndWithout(t, func(t *testing.T, limiter func(...core.Option) *core.Limiter) {
				p := newPartner()
				p.answer = func(_ *http.Request, n int) (*http.Response, error) {
					if n == 1 {
						return p.says(c.status, c.header), nil
					}
					return p.says(200), nil
				}
				rt := Transport(limiter(plenty()), byHost, Base(p))
				for _, host := range []string{"one", "one", "other", "one"} {
					if _, err := get(t, t.Context(), rt, "http://"+host+"/"); err != nil {
						t.Errorf("got error %v, want none", err)
					}
				}
				least, most := c.want, min(c.want+c.want/10, time.Minute)
				if c.want == time.Minute { // the response says more than the bound
					least -= c.want / 10
				}
				if waited := p.came[1]; waited < least || waited > most+time.Microsecond {
					t.Errorf("the next request arrived after %v, want %v to %v", waited, least, most)
				}
				if p.came[2] != p.came[1] || p.came[3] != p.came[1] {
					t.Errorf("requests arrived after %v, want the last three at the same time", p.came)
				}
			})
		})
	}
}

// TestTransportKeys checks that an answer that holds back one key does not hold back another key.
func TestTransportKeys(t *testing.T) {
	t.Parallel()
	withBansAndWithout(t, func(t *testing.T, limiter func(...core.Option) *core.Limiter) {
		p := newPartner()
		p.answer = func(*http.Request, int) (*http.Response, error) { return p.says(429, "Retry-After: 30"), nil }
		lim := limiter(plenty())
		rt := Transport(lim, byHost, Base(p))
		for _, host := range []string{"alice", "bob"} {
			if status, err := get(t, t.Context(), rt, "http://"+host+"/"); status != 429 || err != nil {
				t.Errorf("%s: got status %d, %v; want 429", host, status, err)
			}
		}
		brief, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		if _, err := get(t, brief, rt, "http://alice/"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("alice again: got error %v, want DeadlineExceeded", err)
		}
		leaves, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if _, err := get(t, leaves, rt, "http://bob/"); !errors.Is(err, context.Canceled) {
			t.Errorf("bob again: got error %v, want Canceled", err)
		}
		if took := time.Since(p.begun); took != time.Second || len(p.came) != 2 {
			t.Errorf("after %v, %d requests have arrived, want 2 after 1s", took, len(p.came))
		}
		if res, err := lim.Peek(t.Context(), "carol"); err != nil || res.Banned {
			t.Errorf("carol: got %+v, %v; want no ban", res, err)
		}
	})
}

// TestTransportExtends makes responses arrive late, in any order: the longest time must count, and requests that already wait must
// continue to wait.
func TestTransportExtends(t *testing.T) {
	t.Parallel()
	withBansAndWithout(t, func(t *testing.T, limiter func(...core.Option) *core.Limiter) {
		answers := map[string]struct {
			after time.Duration
			says  string
		}{
			"/a": {time.Second, "Retry-After: 10"}, "/b": {2 * time.Second, "Retry-After: 2"}, "/c": {8 * time.Second, "Retry-After: 20"},
		}
		var mu sync.Mutex
		var late []time.Duration
		begun := time.Now()
		p := newPartner()
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			a, ok := answers[r.URL.Path]
			if ok {
				time.Sleep(a.after - time.Since(begun))
			}
			mu.Lock()
			defer mu.Unlock()
			if ok {
				return p.says(429, a.says), nil
			}
			late = append(late, time.Since(begun))
			return p.says(200), nil
		})
		rt := Transport(limiter(plenty()), byHost, Base(base))
		var calls sync.WaitGroup
		for path := range answers {
			calls.Go(func() { _, _ = get(t, t.Context(), rt, "http://partner"+path) })
		}
		time.Sleep(2500 * time.Millisecond)
		for range 3 {
			calls.Go(func() {
				if _, err := get(t, t.Context(), rt, "http://partner/later"); err != nil {
					t.Errorf("got error %v, want none", err)
				}
			})
		}
		calls.Wait()
		if first, last := late[0], late[len(late)-1]; len(late) != 3 || first < 28*time.Second || last > 31*time.Second {
			t.Errorf("requests arrived after %v, want three after 28 s to 31 s", late)
		}
	})
}

// TestTransportLooksAgain makes a response arrive while the next request waits for its turn. That request must be sent later than its
// turn, and charged once.
func TestTransportLooksAgain(t *testing.T) {
	t.Parallel()
	withBansAndWithout(t, func(t *testing.T, limiter func(...core.Option) *core.Limiter) {
		lim := limiter(core.FixedWindow(core.PerSecond(1)), core.FixedWindow(core.PerDay(10)))
		p := newPartner()
		p.answer = func(_ *http.Request, n int) (*http.Response, error) {
			if n > 1 {
				return p.says(200), nil
			}
			time.Sleep(500 * time.Millisecond)
			return p.says(429, "Retry-After: 10"), nil
		}
		rt := Transport(lim, byHost, Base(p))
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() { _, _ = get(t, t.Context(), rt, "http://partner/") })
		}
		calls.Wait()
		if second := p.came[1]; second < 10500*time.Millisecond || second > 12*time.Second {
			t.Errorf("the second request arrived after %v, want 10.5s to 12s", second)
		}
		if got := limits.Left(t, lim, "partner"); got[1] != 8 {
			t.Errorf("%d of 10 units per day are left after two requests, want 8", got[1])
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportRetries makes the partner deny the first requests, and checks how often a request is repeated, and which answer the caller
// gets. A body of "stream" cannot be repeated.
func TestTransportRetries(t *testing.T) {
	t.Parallel()
	type request struct{ method, body, header string }
	for _, c := range []struct {
		request
		retries, status, denials int // denials: how many requests are answered with status
		headers                  string
		within                   time.Duration // the deadline of the caller
		want, sent               int           // the status that the caller gets, and how many requests arrive
	}{
		{request{"GET", "", ""}, 0, 429, 1, "Retry-After: 5", time.Hour, 429, 1},
		{request{"GET", "", ""}, 1, 429, 1, "Retry-After: 5", time.Hour, 200, 2},
		{request{"GET", "", ""}, 1, 429, 1, "X-Nothing: 1", time.Hour, 200, 2},
		{request{"GET", "", ""}, 3, 429, 9, "Retry-After: 5", time.Hour, 429, 4},
		{request{"GET", "", ""}, 3, 429, 9, "Retry-After: 5", 4 * time.Second, 429, 1},
		{request{"GET", "", ""}, 3, 429, 9, "Retry-After: 5", 8 * time.Second, 429, 2},
		{request{"GET", "", ""}, 1, 503, 1, "Retry-After: 5", time.Hour, 200, 2},
		{request{"GET", "", ""}, 1, 503, 1, "X-Nothing: 1", time.Hour, 503, 1},
		{request{"GET", "", ""}, 1, 500, 1, "Retry-After: 5", time.Hour, 500, 1},
		{request{"GET", "", ""}, 1, 403, 1, "Retry-After: 5", time.Hour, 200, 2},
		{request{"DELETE", "", ""}, 1, 503, 1, "Retry-After: 5", time.Hour, 200, 2},
		{request{"PUT", "text", ""}, 2, 503, 2, "Retry-After: 5", time.Hour, 200, 3},
		{request{"PUT", "stream", ""}, 1, 429, 1, "Retry-After: 5", time.Hour, 429, 1},
		{request{"POST", "text", ""}, 1, 429, 1, "Retry-After: 5", time.Hour, 200, 2},
		{request{"POST", "text", ""}, 1, 503, 1, "Retry-After: 5", time.Hour, 503, 1},
		{request{"POST", "text", "Idempotency-Key"}, 1, 503, 1, "Retry-After: 5", time.Hour, 200, 2},
		{request{"POST", "stream", "Idempotency-Key"}, 1, 429, 1, "Retry-After: 5", time.Hour, 429, 1},
		{request{"POST", "", ""}, 1, 429, 1, "Retry-After: 5", time.Hour, 429, 1},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPartner()
				p.answer = func(_ *http.Request, n int) (*http.Response, error) {
					if n <= c.denials {
						return p.says(c.status, c.headers), nil
					}
					return p.says(200), nil
				}
				rt := Transport(core.MustNewMemory("partner", plenty()), byHost, Base(p), Retries(c.retries))
				ctx, cancel := context.WithTimeout(t.Context(), c.within)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, c.method, "http://partner/", nil)
				if err != nil {
					t.Fatal(err)
				}
				var bodies []*watchedBody
				body := func() (io.ReadCloser, error) {
					b := &watchedBody{Reader: strings.NewReader(c.body)}
					bodies = append(bodies, b)
					return b, nil
				}
				if c.body != "" {
					r.Body, _ = body()
				}
				if c.body == "text" {
					r.GetBody = body
				}
				if c.header != "" {
					r.Header.Set(c.header, "7")
				}
				before := r.Body
				response, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode != c.want || len(p.came) != c.sent || r.Body != before || response.Request != r {
					t.Errorf("got status %d after %d requests, want %d after %d, with the request unchanged", response.StatusCode, len(p.came), c.want, c.sent)
				}
				if text, err := io.ReadAll(response.Body); string(text) != "an answer" || err != nil {
					t.Errorf("got the body %q, %v; want \"an answer\"", text, err)
				}
				_ = response.Body.Close()
				p.wantClosed(t)
				for i, b := range bodies {
					if b.closed.Load() != 1 || p.bodies[i] != c.body {
						t.Errorf("body %d was %q and closed %d times, want %q and once", i+1, p.bodies[i], b.closed.Load(), c.body)
					}
				}
				for i, came := range p.came {
					if i > 0 && c.headers == "Retry-After: 5" && came-p.came[i-1] < 5*time.Second {
						t.Errorf("requests arrived after %v, want 5 s or more between them", p.came)
					}
				}
			})
		})
	}
}

// An endless body has no end, and counts how many bytes are read. The Transport reads it in the background.
type endless struct{ read, closed atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) { e.read.Add(int64(len(p))); return len(p), nil }
func (e *endless) Close() error               { e.closed.Add(1); return nil }

// TestTransportDrains repeats a request after a response whose body has no end: the Transport must read only a part of the body, and
// close it.
func TestTransportDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var body endless
		rt := Transport(core.MustNewMemory("partner", plenty()), byHost, Retries(1), Base(roundTripper(func(*http.Request) (*http.Response, error) {
			if body.closed.Load() == 0 {
				return &http.Response{StatusCode: http.StatusTooManyRequests, Body: &body}, nil
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})))
		if status, err := get(t, t.Context(), rt, "http://partner/"); status != http.StatusOK || err != nil {
			t.Errorf("got status %d, %v; want 200", status, err)
		}
		synctest.Wait()
		if body.read.Load() > maxDrained || body.closed.Load() != 1 {
			t.Errorf("%d bytes were read, and the body was closed %d times; want at most %d and once", body.read.Load(), body.closed.Load(), maxDrained)
		}
	})
}

// TestTransportClosesBody ends calls in every way that gives no response: the body of the request must be closed, and the slots free.
func TestTransportClosesBody(t *testing.T) {
	t.Parallel()
	failed := errors.New("it failed")
	ok := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		url  string
		base roundTripper
		cost int64
		want error
	}{
		"no key":         {t.Context(), "http:///", ok, 1, core.ErrInvalidKey},
		"a wrong cost":   {t.Context(), "http://partner/", ok, -1, core.ErrInvalidCost},
		"a great cost":   {t.Context(), "http://partner/", ok, 2, core.ErrNeverAdmitted},
		"the caller":     {gone, "http://partner/", ok, 1, context.Canceled},
		"the base":       {t.Context(), "http://partner/", func(*http.Request) (*http.Response, error) { return nil, failed }, 1, failed},
		"the base panic": {t.Context(), "http://partner/", func(*http.Request) (*http.Response, error) { panic(failed) }, 1, failed},
		"the key panic":  {t.Context(), "http://panic/", ok, 1, failed},
	} {
		lim := core.MustNewMemory("partner", core.InFlight(1))
		key := func(r *http.Request) string {
			if r.URL.Host == "panic" {
				panic(failed)
			}
			return r.URL.Host
		}
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			if response, err := c.base(r); err != nil {
				_ = r.Body.Close() // as the contract of http.RoundTripper demands
				return response, err
			}
			t.Errorf("%s: the request was sent", name)
			return nil, failed
		})
		rt := Transport(lim, key, Base(base), Cost(func(*http.Request) int64 { return c.cost }))
		body := &watchedBody{Reader: strings.NewReader("text")}
		r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.url, body)
		if err != nil {
			t.Fatal(err)
		}
		err = func() (err error) {
			defer func() {
				if value := recover(); value != nil {
					err = failed
				}
			}()
			_, err = rt.RoundTrip(r) //nolint:bodyclose // there is no response
			return err
		}()
		if !errors.Is(err, c.want) || body.closed.Load() != 1 {
			t.Errorf("%s: got error %v, and the body was closed %d times; want %v and once", name, err, body.closed.Load(), c.want)
		}
		wantLeft(t, name, lim, 1)
	}
}

// TestTransportSlots checks that the slots of a request are free when the body of its response ends or is closed, or if there is no body.
func TestTransportSlots(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b io.ReadCloser) (int64, error){
		"read to its end": func(b io.ReadCloser) (int64, error) { return io.Copy(io.Discard, b) },
		"closed":          func(b io.ReadCloser) (int64, error) { return 0, b.Close() },
	} {
		lim := core.MustNewMemory("partner", core.InFlight(2))
		p := newPartner()
		rt := Transport(lim, byHost, Base(p), Cost(func(*http.Request) int64 { return 2 }))
		response := send(t, rt)
		if n, err := io.CopyN(io.Discard, response.Body, 3); n != 3 || err != nil {
			t.Errorf("reading the body: got %d bytes, %v; want 3", n, err)
		}
		wantLeft(t, "while the body is read", lim, 0)
		if _, err := end(response.Body); err != nil {
			t.Errorf("%s: got error %v, want none", name, err)
		}
		wantLeft(t, name, lim, 2)
		_ = response.Body.Close()
		wantLeft(t, "closed once more", lim, 2)
	}
	lim := core.MustNewMemory("partner", core.InFlight(1))
	for _, b := range []io.ReadCloser{nil, http.NoBody} {
		rt := Transport(lim, byHost, Base(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusNoContent, Body: b}, nil
		})))
		if response := send(t, rt); response.Body != b { //nolint:bodyclose // it has none
			t.Errorf("got the body %v, want %v", response.Body, b)
		}
		wantLeft(t, "without a body", lim, 1)
	}
}

// TestTransportUnclosed does not close the body of a response: the error of a request that waits for its slot or units must say that
// bodies must be closed.
func TestTransportUnclosed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit  core.Limit
		option TransportOption
	}{
		"InFlight": {core.InFlight(1), Retries(0)},
		"CountIf":  {core.FixedWindow(core.PerDay(1)), CountIf(func(*http.Response) bool { return false })},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim := core.MustNewMemory("partner", c.limit)
			defer func() { _ = lim.Close() }()
			rt := Transport(lim, byHost, Base(newPartner()), c.option)
			response := send(t, rt)
			defer func() { _ = response.Body.Close() }()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := get(t, ctx, rt, "http://partner/")
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "close the body of each response") {
				t.Errorf("%s: got error %v, want DeadlineExceeded with advice to close bodies", name, err)
			}
		})
	}
}

// An upgraded is the body of a response with the status 101: a connection.
type upgraded struct {
	watchedBody

	wrote string
}

func (u *upgraded) Write(p []byte) (int, error) { u.wrote += string(p); return len(p), nil }

// TestTransportUpgrade sends a request whose response takes over the connection: the application must be able to write to the connection,
// and the slot is free after the connection is closed.
func TestTransportUpgrade(t *testing.T) {
	t.Parallel()
	connection := &upgraded{watchedBody: watchedBody{Reader: strings.NewReader("hello")}}
	lim := core.MustNewMemory("partner", core.InFlight(1))
	rt := Transport(lim, byHost, Base(roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: connection}, nil
	})))
	response := send(t, rt)
	w, ok := response.Body.(io.Writer)
	if !ok {
		t.Fatalf("the body is a %T, want an io.Writer", response.Body)
	}
	if _, err := w.Write([]byte("hi")); err != nil || connection.wrote != "hi" {
		t.Errorf("the connection received %q, %v; want \"hi\"", connection.wrote, err)
	}
	wantLeft(t, "while it is open", lim, 0)
	_ = response.Body.Close()
	if wantLeft(t, "then", lim, 1); connection.closed.Load() != 1 {
		t.Errorf("the connection was closed %d times, want once", connection.closed.Load())
	}
}

// TestTransportCosts checks how many units are reserved while a request is in flight, and how many are charged according to the response.
func TestTransportCosts(t *testing.T) {
	t.Parallel()
	failed := errors.New("it failed")
	served := CountIf(func(r *http.Response) bool { return r.StatusCode == http.StatusOK })
	seven := CostAfter(func(*http.Response) int64 { return 7 })
	wrong := CostAfter(func(*http.Response) int64 { return -1 })
	panics := CostAfter(func(*http.Response) int64 { panic(failed) })
	for name, c := range map[string]struct {
		status       int // of the response; 0: an error
		opts         []TransportOption
		during, then int64 // how many units of 100 remain
	}{
		"plain":                  {200, nil, 97, 97},
		"an error":               {0, nil, 97, 97},
		"counted":                {200, []TransportOption{served}, 97, 97},
		"not counted":            {500, []TransportOption{served}, 97, 100},
		"an error is counted":    {0, []TransportOption{served}, 97, 97},
		"known after":            {200, []TransportOption{seven}, 97, 93},
		"an error costs as said": {0, []TransportOption{seven}, 97, 97},
		"both":                   {200, []TransportOption{seven, served}, 97, 93},
		"both, not counted":      {404, []TransportOption{seven, served}, 97, 100},
		"a wrong cost":           {200, []TransportOption{wrong}, 97, 97},
		"a panic":                {200, []TransportOption{panics}, 97, 97},
	} {
		lim := core.MustNewMemory("partner", core.FixedWindow(core.PerHour(100)))
		p := newPartner()
		p.answer = func(*http.Request, int) (*http.Response, error) {
			wantLeft(t, name+", meanwhile", lim, c.during)
			if c.status == 0 {
				return nil, failed
			}
			return p.says(c.status), nil
		}
		rt := Transport(lim, byHost, append(c.opts, Base(p), Cost(func(*http.Request) int64 { return 3 }))...)
		func() {
			defer func() { _ = recover() }()
			if _, err := get(t, t.Context(), rt, "http://partner/"); err != nil && c.status != 0 {
				t.Errorf("%s: got error %v, want none", name, err)
			}
		}()
		wantLeft(t, name, lim, c.then)
	}
}

// TestTransportForgets holds back more keys than this process remembers: the keys whose pauses end last must be kept.
func TestTransportForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPauses()
		for i := range maxPauses + 100 {
			p.extend(fmt.Sprint(i), time.Now().Add(time.Duration(i+1)*time.Second))
		}
		if p.left("99") > 0 || p.left("100") <= 0 || p.left(fmt.Sprint(maxPauses+99)) <= 0 || len(p.until) != maxPauses {
			t.Errorf("%d pauses are remembered, want the last %d", len(p.until), maxPauses)
		}
		time.Sleep(maxPauses * time.Second)
		if p.extend("new", time.Now().Add(time.Second)); len(p.until) > 110 {
			t.Errorf("%d pauses are remembered, want at most 110: most are over", len(p.until))
		}
	})
}

// TestTransportJitter receives the same answer many times: the waits must differ, but none may be too short or beyond the bound.
func TestTransportJitter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header      string
		least, most time.Duration
		instants    int // how many different waits there are at least
	}{
		{"Retry-After: 10", 10 * time.Second, 11 * time.Second, 50},
		{"Retry-After: 58", 58 * time.Second, time.Minute, 50},
		{"Retry-After: 60", time.Minute, time.Minute, 1}, // the bound leaves no room
		{"Retry-After: 3600", 54 * time.Second, time.Minute, 50},
	} {
		p, seen := newPartner(), make(map[time.Duration]bool)
		tr := &transport{bound: time.Minute}
		for range 100 {
			d := tr.asked(p.says(429, c.header)) //nolint:bodyclose // there is nothing to close
			if seen[d] = true; d < c.least || d > c.most {
				t.Errorf("%s: got the wait %v, want %v to %v", c.header, d, c.least, c.most)
			}
		}
		if len(seen) < c.instants {
			t.Errorf("%s: 100 answers make %d different waits, want at least %d", c.header, len(seen), c.instants)
		}
	}
}

// TestTransportOptions checks that each mistake in the options panics, and that CloseIdleConnections reaches the base.
func TestTransportOptions(t *testing.T) {
	t.Parallel()
	lim, queue := core.MustNewMemory("partner", plenty()), core.MustNewMemory("queue", core.LeakyBucket(core.PerMinute(1)))
	Transport(queue, byHost, CountIf(func(*http.Response) bool { return false }))
	for want, f := range map[string]func(){
		"httplimit: Transport needs a limiter and a key function":  func() { Transport(nil, byHost) },
		"httplimit: Transport needs a limiter and a key function ": func() { Transport(lim, nil) },
		"httplimit: Base: allowed is what is not nil":              func() { Base(nil) },
		"httplimit: Retries: allowed is 0 to 10":                   func() { Retries(11) },
		"httplimit: Retries: allowed is 0 to 10 ":                  func() { Retries(-1) },
		"httplimit: MaxRetryAfter: allowed is 1ms to 24h0m0s":      func() { MaxRetryAfter(0) },
		"httplimit: MaxRetryAfter: allowed is 1ms to 24h0m0s ":     func() { MaxRetryAfter(24*time.Hour + 1) },
		"httplimit: Cost: allowed is a function":                   func() { Cost(nil) },
		"httplimit: CountIf: allowed is a function":                func() { CountIf(nil) },
		"httplimit: CostAfter: allowed is a function":              func() { CostAfter(nil) },
		"httplimit: Retries: give it once":                         func() { Transport(lim, byHost, Retries(1), Retries(2)) },
		"httplimit: CostAfter: no limit of the limiter charges another cost later: InFlight has slots, and a LeakyBucket keeps its charge": func() {
			Transport(queue, byHost, CostAfter(func(*http.Response) int64 { return 1 }))
		},
		"httplimit: CountIf: the limiter has InFlight alone, whose slots are freed whatever the response is: give it a limit to count by": func() {
			Transport(core.MustNewMemory("slots", core.InFlight(1)), byHost, CountIf(func(*http.Response) bool { return false }))
		},
		"httplimit: the handler to limit is nil: for the default of http.ListenAndServe pass http.DefaultServeMux": func() {
			Middleware(lim, keyfunc.IP())(nil)
		},
		"httplimit: a nil option: leave it out": func() { Transport(lim, byHost, nil) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != strings.TrimSpace(want) {
					t.Errorf("got the panic %s, want %s", got, want)
				}
			}()
			f()
		}()
	}
	closes := &closer{}
	client := &http.Client{Transport: Transport(lim, byHost, Base(closes))}
	if client.CloseIdleConnections(); !closes.closed {
		t.Error("CloseIdleConnections did not reach the base")
	}
	(&http.Client{Transport: Transport(lim, byHost, Base(newPartner()))}).CloseIdleConnections()
}

// A closer is a base that has CloseIdleConnections.
type closer struct {
	roundTripper

	closed bool
}

func (c *closer) CloseIdleConnections() { c.closed = true }
