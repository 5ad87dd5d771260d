package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/core"
)

const (
	defaultMaxRetryAfter = time.Minute
	longestMaxRetryAfter = 24 * time.Hour
	maxRetries           = 10

	// Of the body of a response that is not returned so many bytes are read, for so long, so that its
	// connection can be used again.
	maxDrained = 64 << 10
	drainTime  = 100 * time.Millisecond

	// statusOverloaded is the status of APIs that are overloaded, such as Anthropic's.
	statusOverloaded = 529
)

// Transport returns an [http.RoundTripper] that sends requests no faster than lim allows, counted
// by key: for clients of an API that has limits of its own.
//
//	client := &http.Client{
//		Transport: httplimit.Transport(lim, func(r *http.Request) string { return r.URL.Host }),
//		Timeout:   10 * time.Second,
//	}
//
// A request waits for its turn as [core.Limiter.AcquireWait] does, within its context. It fails at
// once with [context.DeadlineExceeded] if its turn comes after its deadline, which the client's
// Timeout sets, too. Each redirect is a request of its own. Slots of [core.InFlight] are held until
// the response's body is closed or read to its end.
//
// If the other side answers 429, or 503, 529 or 403 with Retry-After or Retry-After-Ms, nothing is sent
// for that key until then, and up to a tenth longer, so that not all come back together. A 403 or
// 429 without these may have a Remaining that is not above 0 and a Reset, with the prefix
// X-RateLimit-, RateLimit- or X-Rate-Limit-, or the header RateLimit as in the IETF's drafts. A Reset
// is in seconds from now, in Unix time (seconds, or milliseconds from 1e11 on), an instant of ISO 8601
// or a duration such as "1m30s". A 429 that
// does not say for how long is for a second; any other 403 is the caller's. Times are compared with
// the Date of the response. No response holds back a key for longer than [MaxRetryAfter]. If lim has the option
// [core.Ban], with levels or none, all processes wait, by [core.Limiter.BlockAtLeast] (those with a
// [core.Lease] may spend that first); else, and while Redis does not answer, this process, which
// remembers 10,000 keys. Requests that are under way go on. Of an answer that is dropped, because the
// request is sent again, 64 kB are read, for 100 ms at most.
//
// So the key decides whose 429 stops whom: if the API counts by user, it has the user. A key of ""
// is an error.
//
// Transport panics at once if lim or key is nil, or an option is wrong.
func Transport(lim *core.Limiter, key func(*http.Request) string, opts ...TransportOption) http.RoundTripper {
	if lim == nil || key == nil {
		panic("httplimit: Transport needs a limiter and a key function")
	}
	t := &transport{lim: lim, key: key, base: http.DefaultTransport, bound: defaultMaxRetryAfter, paused: newPauses()}
	given := make(map[string]bool)
	for _, o := range opts {
		if o == nil {
			panic("httplimit: a nil option: leave it out")
		}
		o.applyTo(t, given)
	}
	only := func(algorithms ...string) bool {
		return !slices.ContainsFunc(lim.Limits(), func(l core.Limit) bool { return !slices.Contains(algorithms, l.Algorithm()) })
	}
	switch {
	case t.costAfter != nil && only("in_flight", "leaky_bucket"):
		panic("httplimit: CostAfter: no limit of the limiter charges another cost later: InFlight has slots, and a LeakyBucket keeps its charge")
	case t.countIf != nil && only("in_flight"):
		panic("httplimit: CountIf: the limiter has InFlight alone, whose slots are freed whatever the response is: give it a limit to count by")
	}
	return t
}

// A TransportOption configures a [Transport]. The functions that return TransportOptions panic at once
// if their argument is wrong.
type TransportOption interface {
	applyTo(t *transport, given map[string]bool)
}

// A transportOption sets one thing, and may be given once.
type transportOption struct {
	name string
	set  func(*transport)
}

func (o transportOption) applyTo(t *transport, given map[string]bool) {
	if given[o.name] {
		panic("httplimit: " + o.name + ": give it once")
	}
	given[o.name] = true
	o.set(t)
}

// newTransportOption returns an option that must be valid.
func newTransportOption(name string, valid bool, allowed string, set func(*transport)) TransportOption {
	if !valid {
		panic("httplimit: " + name + ": allowed is " + allowed)
	}
	return transportOption{name, set}
}

// Base sets what sends the requests. The default is [http.DefaultTransport].
func Base(next http.RoundTripper) TransportOption {
	return newTransportOption("Base", next != nil, "what is not nil", func(t *transport) { t.base = next })
}

// MaxRetryAfter bounds for how long one response holds back a key, from a millisecond to a day. The
// default is a minute: what the other side says is not trusted beyond that. A response that says
// more holds back its key for this time or up to a tenth less. GitHub's limits may come back only
// after an hour.
func MaxRetryAfter(d time.Duration) TransportOption {
	allowed := fmt.Sprintf("%v to %v", time.Millisecond, longestMaxRetryAfter)
	return newTransportOption("MaxRetryAfter", d >= time.Millisecond && d <= longestMaxRetryAfter, allowed, func(t *transport) { t.bound = d })
}

// Retries has a request be sent again after an answer that holds back its key, up to n times, from
// 0 (the default) to
// 10. It waits until it is its turn again, and is charged again. The answer is returned instead if the request's
// deadline comes first, or if it cannot be repeated:
//
//   - a body is sent again only with GetBody, which [http.NewRequest] sets for a body in memory;
//   - after a 429 that, or an idempotent method or a header Idempotency-Key is enough;
//   - after a 503, 529 or 403 the method must be idempotent, or have that header: a proxy may answer so when the work was done.
func Retries(n int) TransportOption {
	return newTransportOption("Retries", n >= 0 && n <= maxRetries, fmt.Sprintf("0 to %d", maxRetries), func(t *transport) { t.retries = n })
}

// Cost sets what a request costs. The default is 1. With [CostAfter] it is an estimate.
func Cost(f func(*http.Request) int64) TransportOption {
	return newTransportOption("Cost", f != nil, "a function", func(t *transport) { t.cost = f })
}

// CountIf counts only some responses. Until a response has ended, as for [CostAfter], its cost is
// reserved. A request without a response is counted. f is called for each response, also for one
// after which the request is sent again: the body of that one has not been read.
func CountIf(f func(*http.Response) bool) TransportOption {
	return newTransportOption("CountIf", f != nil, "a function", func(t *transport) { t.countIf = f })
}

// CostAfter charges what f says that a request has cost, from 0 to 1e9, when its response's body
// has been closed or read to its end, so that the trailer is there. Until then [Cost] is reserved,
// and that is charged if there is no response. If the request is sent again, as [Retries] says, f
// is called before the body of the response is read. A [core.LeakyBucket] charges Cost at once.
func CostAfter(f func(*http.Response) int64) TransportOption {
	return newTransportOption("CostAfter", f != nil, "a function", func(t *transport) { t.costAfter = f })
}

type transport struct {
	lim       *core.Limiter
	key       func(*http.Request) string
	base      http.RoundTripper
	bound     time.Duration
	retries   int
	cost      func(*http.Request) int64  // nil for 1
	countIf   func(*http.Response) bool  // or nil
	costAfter func(*http.Response) int64 // or nil
	paused    *pauses                    // without Redis

	wrongCost sync.Once // it was logged
}

// CloseIdleConnections is for the method of [http.Client].
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// RoundTrip sends r when it is its turn, and perhaps again.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	c := &call{transport: t, request: r, open: r.Body, n: 1}
	defer c.closeBody()
	c.key = t.key(r)
	if t.cost != nil {
		c.n = t.cost(r)
	}
	for sent := 1; ; sent++ {
		response, wait, err := c.send(sent > 1)
		if wait == 0 || sent > t.retries || !c.repeats(response, wait) {
			return response, err
		}
		drop(response.Body)
	}
}

// drop ends a response that nobody gets. What it holds of the limiter is given back at once. Its body
// is read in the background, so that the connection can be used again, but not for longer than
// drainTime: the other side may send it as slowly as it likes.
func drop(dropped io.ReadCloser) {
	if dropped == nil {
		return
	}
	defer func() { go drain(dropped) }() // also if a function of the user panics
	if b, ok := dropped.(*body); ok {
		b.pending.finish()
	}
}

func drain(dropped io.ReadCloser) {
	late := time.AfterFunc(drainTime, func() { _ = dropped.Close() })
	_, _ = io.CopyN(io.Discard, dropped, maxDrained)
	if late.Stop() {
		_ = dropped.Close()
	}
}

// A call is a request until there is a response to return.
type call struct {
	*transport

	request *http.Request
	open    io.Closer // the body that nobody has closed yet, or nil
	key     string
	n       int64
}

func (c *call) closeBody() {
	if c.open != nil {
		_ = c.open.Close()
	}
}

// send sends the request when it is its turn. If the answer holds back the key, it returns for how
// long.
func (c *call) send(again bool) (response *http.Response, wait time.Duration, err error) {
	ctx := c.request.Context()
	admitted, err := c.turn(ctx)
	if err != nil {
		return nil, 0, err
	}
	p := &pending{call: c, admitted: admitted}
	p.ctx, p.cancel = admitted.Context(ctx) // another one if there are slots, which may be lost
	defer func() {
		if p.response == nil { // an error or a panic
			p.end()
		}
	}()
	r, err := c.copyOf(p.ctx, again)
	if err != nil {
		return nil, 0, err
	}
	response, err = c.base.RoundTrip(r)
	c.open = nil // that has closed it
	if err != nil || response == nil {
		return response, 0, err
	}
	if wait = c.asked(response); wait > 0 {
		c.holdBack(wait)
	}
	response.Request = c.request
	p.watch(response)
	return response, wait, nil
}

// An admission is what the limiter has admitted for a call: a *core.Permit, or a *core.Reservation if
// what is charged is known only when the response has ended.
type admission interface {
	Cancel(ctx context.Context) error
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// turn waits until it is the turn of the call, and its key is not held back.
func (c *call) turn(ctx context.Context) (admission, error) {
	for {
		if err := c.paused.wait(ctx, c.key); err != nil {
			return nil, err
		}
		admitted, err := c.wait(ctx)
		if err != nil {
			return nil, err
		}
		if c.paused.left(c.key) <= 0 {
			if r, ok := admitted.(*core.Reservation); ok {
				r.Keep() // a response may take long
			}
			return admitted, nil
		}
		_ = admitted.Cancel(ctx) // an answer came meanwhile
	}
}

// wait waits until the limiter admits the call.
func (c *call) wait(ctx context.Context) (admission, error) {
	if c.reserves() {
		return c.lim.ReserveWait(ctx, c.key, c.n)
	}
	return c.lim.AcquireWait(ctx, c.key, c.n)
}

// reserves reports whether what is charged is known only when the response has ended.
func (t *transport) reserves() bool { return t.countIf != nil || t.costAfter != nil }

// copyOf returns the request with a context, and if it is sent again with another body.
func (c *call) copyOf(ctx context.Context, again bool) (*http.Request, error) {
	r := c.request
	if ctx.Done() != r.Context().Done() || again {
		r = r.WithContext(ctx)
	}
	if again && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		r.Body, c.open = body, body
	}
	return r, nil
}

// asked returns for how long response holds back its key, at most the bound: never less than it says,
// unless it says more than the bound.
func (t *transport) asked(response *http.Response) time.Duration {
	denied := response.StatusCode == http.StatusTooManyRequests
	refused := response.StatusCode == http.StatusForbidden
	busy := response.StatusCode == http.StatusServiceUnavailable || response.StatusCode == statusOverloaded
	if !denied && !refused && !busy {
		return 0
	}
	d := retryAfter(response.Header, time.Now(), math.MaxInt64)
	if d == 0 && (denied || refused) {
		d = untilReset(response.Header, denied, time.Now(), math.MaxInt64)
	}
	switch {
	case d > 0:
		d = max(d, time.Millisecond)
	case denied:
		d = time.Second
	default:
		return 0
	}
	return spread(d, t.bound)
}

// spread adds up to a tenth to d within the bound, so that not all processes and keys come back
// together. If d is longer than the bound, it returns the bound or up to a tenth less.
func spread(d, bound time.Duration) time.Duration {
	if d > bound {
		return bound - rand.N(bound/10+1)
	}
	return d + rand.N(min(d/10, bound-d)+1)
}

// holdBack has no process send anything for the key, if the limiter has bans and Redis answers;
// else not this one.
func (c *call) holdBack(d time.Duration) {
	until := time.Now().Add(d)
	// Though the request's context may end now: the next one must wait.
	if c.lim.BlockAtLeast(context.WithoutCancel(c.request.Context()), c.key, d) != nil {
		c.paused.extend(c.key, until)
	}
}

// repeats reports whether the request can be sent again after response, which holds it back for so
// long.
func (c *call) repeats(response *http.Response, wait time.Duration) bool {
	r := c.request
	if deadline, ok := r.Context().Deadline(); ok && time.Until(deadline) < wait {
		return false
	}
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	return idempotent(r) || response.StatusCode == http.StatusTooManyRequests && r.GetBody != nil
}

func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != ""
}

// A pending is what a call has of the limiter until its response has ended.
type pending struct {
	*call

	ctx      context.Context //nolint:containedctx // of the request
	cancel   context.CancelFunc
	admitted admission
	response *http.Response // nil if there is none
	once     sync.Once
}

// watch has p end with the body of response.
func (p *pending) watch(response *http.Response) {
	p.response = response
	switch {
	case p.ctx.Done() == p.request.Context().Done() && !p.reserves(): // no slots, and all is charged
	case response.Body == nil || response.Body == http.NoBody:
		p.end()
	default:
		b := &body{response.Body, p}
		response.Body = b
		if w, ok := b.ReadCloser.(io.Writer); ok { // of a 101
			response.Body = struct {
				*body
				io.Writer
			}{b, w}
		}
	}
}

// end frees the slots, charges what the request has cost, and ends its context.
func (p *pending) end() {
	defer p.cancel()
	p.finish()
}

// finish frees the slots, and charges what the request has cost.
func (p *pending) finish() {
	p.once.Do(func() {
		actual := p.n
		defer func() { p.settle(actual) }() // also if a function of the user panics
		switch {
		case p.response == nil:
		case p.countIf != nil && !p.countIf(p.response):
			actual = 0
		case p.costAfter != nil:
			actual = p.costAfter(p.response)
		}
	})
}

// settle ends what was admitted. What is charged differs from p.n only for a Reservation.
func (p *pending) settle(actual int64) {
	ctx := p.request.Context()
	reservation, ok := p.admitted.(*core.Reservation)
	if !ok {
		_ = p.admitted.(*core.Permit).Release(ctx) //nolint:forcetypeassert // it is one of two
		return
	}
	err := reservation.Settle(ctx, actual)
	if !errors.Is(err, core.ErrInvalidCost) {
		return
	}
	_ = reservation.Settle(ctx, p.n)
	p.wrongCost.Do(func() {
		p.lim.Logger().ErrorContext(ctx, "redislimit: a wrong cost was given by CostAfter, and what was reserved is charged; this is logged once",
			"error", err, "limiter", p.lim.Name())
	})
}

// A body is that of a response that has something of the limiter until it ends.
type body struct {
	io.ReadCloser

	pending *pending
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.pending.end()
	}
	return n, err
}

// Close ends what is pending, also if it panics.
func (b *body) Close() error {
	defer b.pending.end()
	return b.ReadCloser.Close()
}
