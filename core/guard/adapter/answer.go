package adapter

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/coreaccess"
)

// complete adds two things to v: the random number for its Retry-After and, if v is a denial, its error.
// The Status of v must be known.
func (o headers) complete(v *Verdict) {
	if o.Jitter > 0 {
		v.draw = rand.Float64()
	}
	if v.Status != http.StatusTooManyRequests || v.Err != nil {
		return
	}
	denied := &guard.DeniedError{Result: v.Result, Hidden: o.Sets == 0}
	if !denied.Hidden && v.Result.RetryAfter != core.Never {
		denied.RetryAfter = time.Duration(o.retryIn(v.Result.RetryAfter, time.Second, v.draw)) * time.Second
	}
	v.Err = denied
}

// recordLocked writes the headers about the Result of v. It also keeps the Result for handlers, if it is
// tighter than the Results of all earlier decisions about the request. The caller holds the lock of
// v.state.
func (o headers) recordLocked(h Header, v *Verdict) {
	if state := v.state; state.result.Source == core.SourceNone || v.Result.Tighter(state.result) {
		state.result = v.Result
	}
	o.set(h, &v.Result, v.draw, v.state)
}

// unavailableRetry is the Retry-After of a 503. It is short because nobody knows when Redis will
// answer again.
const unavailableRetry = time.Second

// finish sets the headers that depend only on the status. If the request is not served, finish also
// removes headers that an outer middleware has set for the response of the handler.
func (o headers) finish(h Header, v *Verdict) {
	if v.Status != 0 {
		h.Del("Content-Length")
		forbidCaching(h)
	}
	if v.Status == http.StatusServiceUnavailable && o.Sets != 0 {
		o.setRetry(h, unavailableRetry, v.draw)
		if o.Expose {
			o.setExposed(h)
		}
	}
}

// cachingHeaders are the headers about caching that forbidCaching removes. They also include
// Content-Disposition, which would make a browser save the answer as the file that the user wanted to
// download.
var cachingHeaders = []string{
	"Age", "Cdn-Cache-Control", "Cloudflare-Cdn-Cache-Control", "Content-Disposition", "Etag", "Expires", "Last-Modified",
	"Surrogate-Control", "X-Accel-Expires",
}

// forbidCaching sets headers that forbid caches to store the response. Otherwise a cache could store the
// answer to one client and send it, with its Retry-After, to other clients. RFC 6585, section 4, forbids
// caches to store a 429. The header Vary stays, because it says nothing about the body.
func forbidCaching(h Header) {
	for _, name := range cachingHeaders {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
}

// retryMillis returns the Retry-After of a request that is not served, with a precision of one
// millisecond. It returns 0 if there is no Retry-After.
func (o headers) retryMillis(v *Verdict) time.Duration {
	wait := v.Result.RetryAfter
	if v.Status == http.StatusServiceUnavailable {
		wait = unavailableRetry
	}
	if o.Sets != 0 && wait > 0 && wait != core.Never {
		return time.Duration(o.retryIn(wait, time.Millisecond, v.draw)) * time.Millisecond
	}
	return 0
}

// statusOfError returns the status with which to answer a request for which a limiter returned err. ctx
// is the context of the request.
func statusOfError(ctx context.Context, err error) int {
	switch ended := ctx.Err(); {
	case errors.Is(err, core.ErrNeverAdmitted):
		return http.StatusTooManyRequests // as for a denial whose RetryAfter is Never
	case errors.Is(err, core.ErrInvalidKey), errors.Is(err, core.ErrInvalidCost), errors.As(err, new(*coreaccess.WrongLimitError)):
		return http.StatusInternalServerError
	case ended != nil:
		return statusOf(ended)
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// statusOf returns the status of a request whose context ended before the request was served. ended is
// the error of the context. If it is context.DeadlineExceeded, a deadline has passed: one that the
// server has set, or the deadline of a gRPC call. Otherwise the client has probably left.
func statusOf(ended error) int {
	if errors.Is(ended, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return StatusClientGone
}

// An Answerer says how to answer a request if its handler has called a limiter itself. It answers as a
// Guard does for a middleware. [Adapter.NewAnswerer] makes an Answerer. An Answerer is safe for
// concurrent use.
type Answerer struct {
	headers headers

	mistakeLogged atomic.Int64 // when logMistake last logged, in Unix seconds
	lateLogged    sync.Once
}

// Answer returns what to do with a request, and sets the headers of its response. decision and err are
// the values that a method of a limiter has returned; if err is nil, decision must not be nil. ctx is
// the context of the request. Answer never waits, not even for the Delay of a LeakyBucket.
func (a *Answerer) Answer(ctx context.Context, h Header, state *RequestState, decision core.Decision, err error) Verdict {
	v := a.verdict(ctx, state, decision, err)
	a.headers.complete(&v)
	if v.Result.Source != core.SourceNone {
		state.mu.Lock()
		a.headers.recordLocked(h, &v)
		state.mu.Unlock()
	}
	a.headers.finish(h, &v)
	return v
}

// AnswerLate is like Answer, for a request whose response has already begun and can no longer be
// changed. It only reports whether the request must not be served. The first call of AnswerLate is
// logged, because the application should have called Answer earlier.
func (a *Answerer) AnswerLate(ctx context.Context, state *RequestState, decision core.Decision, err error) (refused bool) {
	v := a.verdict(ctx, state, decision, err)
	a.lateLogged.Do(func() {
		state.logger().WarnContext(ctx, "redislimit: an Answerer was called when the response had begun, so that it cannot answer: "+
			"ask the limiter before anything is written; this is logged once", "status", v.Status)
	})
	return v.Status != 0
}

// RetryIn is like [Guard.RetryIn], for a Verdict of Answer.
func (a *Answerer) RetryIn(v Verdict) time.Duration { return a.headers.retryMillis(&v) }

var errNoDecision = errors.New("neither a decision nor an error was passed to the Answerer: pass both values that the limiter's method returned")

// verdict returns the Verdict for err or, if err is nil, for decision.
func (a *Answerer) verdict(ctx context.Context, state *RequestState, decision core.Decision, err error) Verdict {
	v := Verdict{state: state, Err: err}
	if err == nil && decision != nil {
		v.Result = decision.Decided()
	}
	switch {
	case err != nil:
		v.Status = statusOfError(ctx, err)
	case v.Result == core.Result{}:
		v.Status, v.Err = http.StatusInternalServerError, errNoDecision
	case !v.Result.Allowed:
		v.Status = http.StatusTooManyRequests
	}
	if v.Status == http.StatusInternalServerError {
		a.logMistake(ctx, state, v.Err)
	}
	return v
}

// logMistake logs a mistake of the application. It logs about once per minute at most, because every
// request may repeat the mistake.
func (a *Answerer) logMistake(ctx context.Context, state *RequestState, err error) {
	now, last := time.Now().Unix(), a.mistakeLogged.Load()
	if since := now - last; since >= 0 && since < 60 || !a.mistakeLogged.CompareAndSwap(last, now) {
		return
	}
	state.logger().ErrorContext(ctx, "redislimit: a handler used a limiter wrongly; its request is answered with 500, "+
		"and this is logged at most once a minute", "error", err)
}

// logger returns the logger of the limiter that a middleware has used last, or the default logger if no
// middleware has used one.
func (s *RequestState) logger() *slog.Logger {
	if lim := s.limiter.Load(); lim != nil {
		return lim.Logger()
	}
	return slog.Default()
}
