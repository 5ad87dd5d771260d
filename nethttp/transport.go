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

	// The body of a response that is not returned is read for at most drainTime, and at most maxDrained
	// bytes of it, so that its connection can be used again.
	maxDrained = 64 << 10
	drainTime  = 100 * time.Millisecond

	// statusOverloaded is the status of some APIs, such as Anthropic's, when they are overloaded.
	statusOverloaded = 529
)

// Transport returns an [http.RoundTripper] that sends requests no faster than lim allows, counted by key.
// Use it in a client of an API that has limits of its own.
//
//	client := &http.Client{
//		Transport: httplimit.Transport(lim, func(r *http.Request) string { return r.URL.Host }),
//		Timeout:   10 * time.Second,
//	}
//
// A request waits for its turn as [core.Limiter.AcquireWait] does, within its context. It fails at once
// with [context.DeadlineExceeded] if its turn would come after its deadline; the client's Timeout also
// sets a deadline. Each redirect is a request of its own. Slots of [core.InFlight] are held until the
// response's body is closed or read to its end.
//
// # Responses that hold back a key
//
// If the API asks the client to wait, no request is sent for the same key during that time. The wait is up
// to a tenth longer than the API asks, so that not all requests are sent at the same instant. Requests in
// flight continue. The following responses ask the client to wait:
//
//   - A 429, 503, 529 or 403 with Retry-After or Retry-After-Ms.
//   - A 429 or 403 without these headers that has a Remaining of 0 or less and a Reset. For a 429, a Reset
//     without a Remaining is enough. The names of both headers have the prefix X-RateLimit-, RateLimit- or
//     X-Rate-Limit-. The header RateLimit of the IETF's drafts is also understood. A Reset is a number of
//     seconds, a Unix time (in seconds, or in milliseconds from 1e11 on), an instant of ISO 8601 or a
//     duration such as "1m30s".
//   - Any other 429, for one second. Any other response is left to the caller.
//
// Times are compared with the Date of the response. No response holds back a key for longer than
// [MaxRetryAfter].
//
// If lim has the option [core.Ban], with or without durations, Transport calls
// [core.Limiter.BlockAtLeast], so that all processes wait. Processes with a [core.Lease] can spend the
// lease first. Otherwise, and while Redis does not answer, only this process waits. It remembers up to
// 10,000 keys.
//
// The key therefore decides which requests a 429 holds back. If the API counts by user, let the key contain
// the user. An empty key is an error.
//
// Transport panics at once if lim or key is nil, or if an option is wrong.
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

// newTransportOption returns an option, and panics unless valid is set. allowed says in the message what
// would be valid.
func newTransportOption(name string, valid bool, allowed string, set func(*transport)) TransportOption {
	if !valid {
		panic("httplimit: " + name + ": allowed is " + allowed)
	}
	return transportOption{name, set}
}

// Base sets the RoundTripper that sends the requests. The default is [http.DefaultTransport].
func Base(next http.RoundTripper) TransportOption {
	return newTransportOption("Base", next != nil, "what is not nil", func(t *transport) { t.base = next })
}

// MaxRetryAfter bounds how long one response holds back a key, from a millisecond to a day. The default is
// one minute, because a longer time could be a mistake of the API. If a response asks for more, its key is
// held back for d, or up to a tenth less. Note that GitHub's limits become available again only after up
// to an hour.
func MaxRetryAfter(d time.Duration) TransportOption {
	allowed := fmt.Sprintf("%v to %v", time.Millisecond, longestMaxRetryAfter)
	return newTransportOption("MaxRetryAfter", d >= time.Millisecond && d <= longestMaxRetryAfter, allowed, func(t *transport) { t.bound = d })
}

// Retries sends a request again after a response that holds back its key, up to n times. n is from 0, the
// default, to 10. Before it is sent again, the request waits for its next turn, and is charged again. If
// the limiter then does not admit it before its deadline, the request fails, as on the first attempt. The
// request is not sent again, and the response is returned, if its deadline would come before the end of
// the time for which the key is held back, or if the request cannot be repeated:
//
//   - A request with a body needs GetBody, which [http.NewRequest] sets for a body in memory.
//   - After a 429, a GetBody, an idempotent method or a header Idempotency-Key is enough.
//   - After a 503, 529 or 403, the method must be idempotent, or the request must have a header
//     Idempotency-Key, because a proxy can send such a response after the work was done.
//
// At most 64 kB of a response that is not returned are read, for at most 100 ms, so that its connection
// can be used again.
func Retries(n int) TransportOption {
	return newTransportOption("Retries", n >= 0 && n <= maxRetries, fmt.Sprintf("0 to %d", maxRetries), func(t *transport) { t.retries = n })
}

// Cost sets the cost of a request. The default is 1. With [CostAfter], the cost is an estimate. A request
// with a negative cost is not sent, and fails with [core.ErrInvalidCost].
func Cost(f func(*http.Request) int64) TransportOption {
	return newTransportOption("Cost", f != nil, "a function", func(t *transport) { t.cost = f })
}

// CountIf counts only requests for whose response f returns true. The cost of a request is reserved until
// its response has ended. A request that gets no response is counted. f is also called for a response after
// which the request is sent again; the body of that response has not been read.
func CountIf(f func(*http.Response) bool) TransportOption {
	return newTransportOption("CountIf", f != nil, "a function", func(t *transport) { t.countIf = f })
}

// CostAfter charges the cost that f returns, from 0 to 1e9, after the response's body has been closed or
// read to its end, so that f can read the trailer. Until then, [Cost] is reserved. Cost is also charged if
// there is no response, or if f returns a cost that is not allowed; the first such cost is logged. If the
// request is sent again (see [Retries]), f is called before the response's body is read. A
// [core.LeakyBucket] charges Cost at once.
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
	paused    *pauses                    // keys held back by this process alone

	wrongCost sync.Once // a wrong cost is logged once
}

// CloseIdleConnections implements the method that [http.Client.CloseIdleConnections] calls.
func (t *transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// RoundTrip sends r when it is its turn, and sends it again if that is allowed and needed.
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

// drop ends a response that is not returned. It frees the slots and charges the cost of the request at once.
// The body is read in the background, so that its connection can be used again. This takes at most drainTime,
// because the server may send the body slowly.
func drop(dropped io.ReadCloser) {
	if dropped == nil {
		return
	}
	defer func() { go drain(dropped) }() // deferred, so it also runs if a function of the application panics
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

// A call is one request of RoundTrip, which may be sent several times.
type call struct {
	*transport

	request *http.Request
	open    io.Closer // the body that must still be closed, or nil
	key     string
	n       int64
}

func (c *call) closeBody() {
	if c.open != nil {
		_ = c.open.Close()
	}
}

// send sends the request when it is its turn. If the response holds back the key, wait is how long.
func (c *call) send(again bool) (response *http.Response, wait time.Duration, err error) {
	ctx := c.request.Context()
	admitted, err := c.turn(ctx)
	if err != nil {
		return nil, 0, err
	}
	p := &pending{call: c, admitted: admitted}
	p.ctx, p.cancel = admitted.Context(ctx) // another one if there are slots, which may be lost
	defer func() {
		if p.response == nil { // after an error or a panic
			p.end()
		}
	}()
	r, err := c.copyOf(p.ctx, again)
	if err != nil {
		return nil, 0, err
	}
	response, err = c.base.RoundTrip(r)
	c.open = nil // RoundTrip has closed it
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
		_ = admitted.Cancel(ctx) // in the meantime, a response has held back the key
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

// copyOf returns the request with the context ctx. If the request is sent again, it has a new body.
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

// asked returns how long response holds back its key, or 0 if it does not. The time is never shorter than
// the response says, unless that exceeds the bound.
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

// spread adds up to a tenth to d, within the bound, so that not all processes and keys come back together.
// If d exceeds the bound, spread returns the bound or up to a tenth less.
func spread(d, bound time.Duration) time.Duration {
	if d > bound {
		return bound - rand.N(bound/10+1)
	}
	return d + rand.N(min(d/10, bound-d)+1)
}

// holdBack holds back the key for d: in all processes if the limiter has bans and Redis answers, and
// otherwise in this process.
func (c *call) holdBack(d time.Duration) {
	until := time.Now().Add(d)
	// The block must be sent even if the request's context ends now, because the next request must wait.
	if c.lim.BlockAtLeast(context.WithoutCancel(c.request.Context()), c.key, d) != nil {
		c.paused.extend(c.key, until)
	}
}

// repeats reports whether the request can be sent again after response, which holds it back for wait.
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

// A pending is the reservation of a request that was sent. It is held until the response has ended.
type pending struct {
	*call

	ctx      context.Context //nolint:containedctx // of the request
	cancel   context.CancelFunc
	admitted admission
	response *http.Response // nil if there is none
	once     sync.Once
}

// watch makes response end p when its body is closed or has been read to its end. If there is no body, watch
// ends p at once.
func (p *pending) watch(response *http.Response) {
	p.response = response
	switch {
	case p.ctx.Done() == p.request.Context().Done() && !p.reserves(): // no slots, and everything is charged already
	case response.Body == nil || response.Body == http.NoBody:
		p.end()
	default:
		b := &body{response.Body, p}
		response.Body = b
		if w, ok := b.ReadCloser.(io.Writer); ok { // the body of a 101 is a connection
			response.Body = struct {
				*body
				io.Writer
			}{b, w}
		}
	}
}

// end frees the slots, charges the cost of the request, and ends its context.
func (p *pending) end() {
	defer p.cancel()
	p.finish()
}

// finish frees the slots and charges the cost of the request. Only the first call has an effect.
func (p *pending) finish() {
	p.once.Do(func() {
		actual := p.n
		defer func() { p.settle(actual) }() // also runs if a function of the application panics
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

// A body is the body of a response. When it ends, it ends the pending.
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

// Close closes the body and ends the pending, even if the inner Close panics.
func (b *body) Close() error {
	defer b.pending.end()
	return b.ReadCloser.Close()
}
