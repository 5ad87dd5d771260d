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

// A partner is the other side. It notes when requests come, and answers as a test says.
type partner struct {
	answer func(r *http.Request, n int) (*http.Response, error) // to the nth; nil for 200

	mu     sync.Mutex
	begun  time.Time
	came   []time.Duration
	bodies []string
	sent   []*watchedBody
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

func headersOf(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

// wantClosed checks that all bodies of responses were closed once.
func (p *partner) wantClosed(t *testing.T) {
	t.Helper()
	for i, b := range p.sent {
		if n := b.closed.Load(); n != 1 {
			t.Errorf("the body of response %d was closed %d times", i+1, n)
		}
	}
}

// A watchedBody is the body of a request or of a response.
type watchedBody struct {
	io.Reader

	closed atomic.Int64
}

func (b *watchedBody) Close() error { b.closed.Add(1); return nil }

func byHost(r *http.Request) string { return r.URL.Host }

// plenty is a limit that no test reaches.
func plenty() core.Limit { return core.TokenBucket(core.PerSecond(1000)) }

// withBansAndWithout runs a test with limiters that ban who is held back, and with others.
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

func wantLeft(t *testing.T, what string, lim *core.Limiter, want int64) {
	t.Helper()
	if res, err := lim.Peek(t.Context(), "partner"); err != nil || res.Remaining != want {
		t.Errorf("%s: %d are left, %v; want %d", what, res.Remaining, err, want)
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

// TestTransportWaits sends more than the limit at once: requests come at its rate, and one whose turn is after its deadline
// fails at once.
func TestTransportWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPartner()
		rt := Transport(core.MustNewMemory("partner", core.TokenBucket(core.PerSecond(2), core.Burst(1))), byHost, Base(p))
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if status, err := get(t, t.Context(), rt, "http://partner/"); status != 200 || err != nil {
					t.Errorf("%d, %v", status, err)
				}
			})
		}
		synctest.Wait()
		brief, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		before := time.Now()
		if _, err := get(t, brief, rt, "http://partner/"); !errors.Is(err, context.DeadlineExceeded) || time.Since(before) > 0 {
			t.Errorf("%v after %v", err, time.Since(before))
		}
		calls.Wait()
		if want := []time.Duration{0, 500e6, 1000e6, 1500e6}; !slices.Equal(p.came, want) {
			t.Errorf("they came after %v, want %v", p.came, want)
		}
		p.wantClosed(t)
	})
}

// TestTransportHoldsBack makes the partner answer the first request, and checks when the next one comes:
// not before the time in the response, at most a tenth later, and never beyond the bound. It is the same
// with and without bans.
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
						t.Error(err)
					}
				}
				least, most := c.want, min(c.want+c.want/10, time.Minute)
				if c.want == time.Minute { // the bound, and the response says more
					least -= c.want / 10
				}
				if waited := p.came[1]; waited < least || waited > most+time.Microsecond {
					t.Errorf("the next request came after %v, want %v to %v", waited, least, most)
				}
				if p.came[2] != p.came[1] || p.came[3] != p.came[1] {
					t.Errorf("those after it came after %v", p.came)
				}
			})
		})
	}
}

// TestTransportKeys checks that holding back a key does not hold back another.
func TestTransportKeys(t *testing.T) {
	t.Parallel()
	withBansAndWithout(t, func(t *testing.T, limiter func(...core.Option) *core.Limiter) {
		p := newPartner()
		p.answer = func(*http.Request, int) (*http.Response, error) { return p.says(429, "Retry-After: 30"), nil }
		lim := limiter(plenty())
		rt := Transport(lim, byHost, Base(p))
		for _, host := range []string{"alice", "bob"} {
			if status, err := get(t, t.Context(), rt, "http://"+host+"/"); status != 429 || err != nil {
				t.Errorf("%s: %d, %v", host, status, err)
			}
		}
		brief, cancel := context.WithTimeout(t.Context(), 29*time.Second)
		defer cancel()
		if _, err := get(t, brief, rt, "http://alice/"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		leaves, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if _, err := get(t, leaves, rt, "http://bob/"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if took := time.Since(p.begun); took != time.Second || len(p.came) != 2 {
			t.Errorf("after %v %d requests have come", took, len(p.came))
		}
		if res, err := lim.Peek(t.Context(), "carol"); err != nil || res.Banned {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestTransportExtends makes responses come late, in any order: the longest time counts, and requests that
// wait meanwhile keep waiting.
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
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if first, last := late[0], late[len(late)-1]; len(late) != 3 || first < 28*time.Second || last > 31*time.Second {
			t.Errorf("they came after %v, want 28 s and up to 2 more", late)
		}
	})
}

// TestTransportLooksAgain makes a response come while the next request waits for its turn. That request is
// sent later than its turn, and charged once.
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
			t.Errorf("the second came after %v", second)
		}
		if got := limits.Left(t, lim, "partner"); got[1] != 8 {
			t.Errorf("%d of a day's 10 are left after two requests", got[1])
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportRetries makes the partner deny every request except the last one that may come.
func TestTransportRetries(t *testing.T) {
	t.Parallel()
	type request struct{ method, body, header string } // a body of "stream" cannot be repeated
	for _, c := range []struct {
		request
		retries, status, denials int
		headers                  string
		within                   time.Duration
		want, sent               int
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
					t.Errorf("status %d of %d requests, want %d of %d", response.StatusCode, len(p.came), c.want, c.sent)
				}
				if text, err := io.ReadAll(response.Body); string(text) != "an answer" || err != nil {
					t.Errorf("%q, %v", text, err)
				}
				_ = response.Body.Close()
				p.wantClosed(t)
				for i, b := range bodies {
					if b.closed.Load() != 1 || p.bodies[i] != c.body {
						t.Errorf("body %d was %q and closed %d times", i+1, p.bodies[i], b.closed.Load())
					}
				}
				for i, came := range p.came {
					if i > 0 && c.headers == "Retry-After: 5" && came-p.came[i-1] < 5*time.Second {
						t.Errorf("they came after %v", p.came)
					}
				}
			})
		})
	}
}

// An endless body counts what is read of it. It is read in the background.
type endless struct{ read, closed atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) { e.read.Add(int64(len(p))); return len(p), nil }
func (e *endless) Close() error               { e.closed.Add(1); return nil }

// TestTransportDrains drops a response whose body has no end.
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
			t.Error(status, err)
		}
		synctest.Wait()
		if body.read.Load() > maxDrained || body.closed.Load() != 1 {
			t.Errorf("%d bytes were read, and it was closed %d times", body.read.Load(), body.closed.Load())
		}
	})
}

// TestTransportClosesBody ends calls in all ways but a response: the request's body is closed, and slots are free.
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
				_ = r.Body.Close() // as the contract of a RoundTripper says
				return response, err
			}
			t.Errorf("%s: it was sent", name)
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
			t.Errorf("%s: %v, and the body was closed %d times", name, err, body.closed.Load())
		}
		wantLeft(t, name, lim, 1)
	}
}

// TestTransportSlots looks when slots are free: with the end of the body, however that is.
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
			t.Error(err)
		}
		wantLeft(t, "while the body is read", lim, 0)
		if _, err := end(response.Body); err != nil {
			t.Error(err)
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
			t.Errorf("the body is %v, want %v", response.Body, b)
		}
		wantLeft(t, "without a body", lim, 1)
	}
}

// TestTransportUnclosed leaves the body of a response open: the error of a request that waits for its slot
// or units says what to do.
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
				t.Errorf("%s: the error is %v", name, err)
			}
		})
	}
}

// An upgraded is the body of a 101: a connection.
type upgraded struct {
	watchedBody

	wrote string
}

func (u *upgraded) Write(p []byte) (int, error) { u.wrote += string(p); return len(p), nil }

// TestTransportUpgrade makes a response take over the connection: the application can write to it, and its
// slot is free after it is closed.
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
		t.Fatalf("a %T cannot be written", response.Body)
	}
	if _, err := w.Write([]byte("hi")); err != nil || connection.wrote != "hi" {
		t.Errorf("%q, %v", connection.wrote, err)
	}
	wantLeft(t, "while it is open", lim, 0)
	_ = response.Body.Close()
	if wantLeft(t, "then", lim, 1); connection.closed.Load() != 1 {
		t.Errorf("it was closed %d times", connection.closed.Load())
	}
}

// TestTransportCosts compares the units that are charged according to the response with the units reserved
// until then.
func TestTransportCosts(t *testing.T) {
	t.Parallel()
	failed := errors.New("it failed")
	served := CountIf(func(r *http.Response) bool { return r.StatusCode == http.StatusOK })
	seven := CostAfter(func(*http.Response) int64 { return 7 })
	wrong := CostAfter(func(*http.Response) int64 { return -1 })
	panics := CostAfter(func(*http.Response) int64 { panic(failed) })
	for name, c := range map[string]struct {
		status       int // 0 for an error
		opts         []TransportOption
		during, then int64 // remain of 100
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
				t.Errorf("%s: %v", name, err)
			}
		}()
		wantLeft(t, name, lim, c.then)
	}
}

// TestTransportForgets holds back more keys than this process remembers: those that end last stay.
func TestTransportForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPauses()
		for i := range maxPauses + 100 {
			p.extend(fmt.Sprint(i), time.Now().Add(time.Duration(i+1)*time.Second))
		}
		if p.left("99") > 0 || p.left("100") <= 0 || p.left(fmt.Sprint(maxPauses+99)) <= 0 || len(p.until) != maxPauses {
			t.Errorf("%d are remembered, not the last", len(p.until))
		}
		time.Sleep(maxPauses * time.Second)
		if p.extend("new", time.Now().Add(time.Second)); len(p.until) > 110 {
			t.Errorf("%d are remembered, though most are over", len(p.until))
		}
	})
}

// TestTransportJitter gets the same answer many times: the waits differ, none is too short, and none is beyond the bound.
func TestTransportJitter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header      string
		least, most time.Duration
		instants    int
	}{
		{"Retry-After: 10", 10 * time.Second, 11 * time.Second, 50},
		{"Retry-After: 58", 58 * time.Second, time.Minute, 50},
		{"Retry-After: 60", time.Minute, time.Minute, 1}, // there is no room for more
		{"Retry-After: 3600", 54 * time.Second, time.Minute, 50},
	} {
		p, seen := newPartner(), make(map[time.Duration]bool)
		tr := &transport{bound: time.Minute}
		for range 100 {
			d := tr.asked(p.says(429, c.header)) //nolint:bodyclose // there is nothing to close
			if seen[d] = true; d < c.least || d > c.most {
				t.Errorf("%s: %v, want %v to %v", c.header, d, c.least, c.most)
			}
		}
		if len(seen) < c.instants {
			t.Errorf("%s: 100 answers make %d instants", c.header, len(seen))
		}
	}
}

// TestTransportOptions makes each mistake.
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
					t.Errorf("%s, want %s", got, want)
				}
			}()
			f()
		}()
	}
	closes := &closer{}
	client := &http.Client{Transport: Transport(lim, byHost, Base(closes))}
	if client.CloseIdleConnections(); !closes.closed {
		t.Error("idle connections stay open")
	}
	(&http.Client{Transport: Transport(lim, byHost, Base(newPartner()))}).CloseIdleConnections()
}

type closer struct {
	roundTripper

	closed bool
}

func (c *closer) CloseIdleConnections() { c.closed = true }
