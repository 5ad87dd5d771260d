package adapter

import (
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
	"github.com/redislimit/redislimit/internal/inside"
)

// A RequestState contains what the middlewares of one request have decided so far. An adapter keeps
// one RequestState with each request, for handlers and for stacked middlewares. The zero value is
// ready to use. It is safe for concurrent use.
type RequestState struct {
	limiter atomic.Pointer[core.Limiter] // the limiter that a middleware has used last; nil before the first one
	cost    atomic.Pointer[cost]         // what was last passed to SetCost; nil before the first call
	charges atomic.Int32                 // 0 before the Check of a middleware with CostAfter; then chargesLater or hasCharged
	refused atomic.Int32                 // the last status, 503 or 499, with which a middleware refused the request; 0 if none did

	// mu guards the fields below. Middlewares of one request can run at the same time: a middleware
	// inside http.TimeoutHandler continues after the timeout, and the handler of one request may serve
	// several inner requests with the same state.
	mu         sync.Mutex
	result     core.Result     // the tightest Result so far
	names      *settings.Names // the names of the X-RateLimit headers, as the first middleware that sets them was configured
	xRateLimit shown           // the Result that the headers with these names show
	others     []otherNames    // the Results that headers with other names show
	ietf       shown           // the Result that the headers of the set IETF show
	values     [3]string       // the X-RateLimit headers that the first middleware set
	text       [64]byte        // a buffer for formatting X-RateLimit headers
	header     uintptr         // the identity of the response headers of the first request that was counted; otherwise 0
	counted    [2]counted      // how the first two middlewares that counted this request did so
	slots      []slot          // the slots that the request holds now
}

// A slot identifies a slot of InFlight that a request holds while it is served.
type slot struct {
	counted

	header uintptr // the identity of the response headers
}

// The values of RequestState.charges after the Check of a middleware with CostAfter.
const (
	chargesLater int32 = 1 + iota // since the last such Check, no middleware has settled a cost
	hasCharged                    // since the last such Check, a middleware has settled a cost
)

// A counted says how a middleware counted a request: with which limiter, and by which key.
type counted struct {
	limiter *core.Limiter
	key     string
}

// countsAgain reports whether another middleware has already counted the request with lim and key. If
// not, countsAgain records that the request is counted now. It records only two middlewares, so it does
// not notice if a third one and a fourth one count the request alike.
//
// The handler of one request may serve several inner requests with the same state, and it is normal that
// these are counted with the same limiter and key. If the headers of a response are an http.Header, each
// inner request has headers of its own. countsAgain then looks only at the first request that was counted,
// and returns false for all others. The caller holds s.mu.
func (s *RequestState) countsAgain(h Header, lim *core.Limiter, key string) bool {
	header := identity(h)
	if s.header == 0 {
		s.header = header
	}
	if s.header != header {
		return false
	}
	for i := range s.counted {
		switch c := &s.counted[i]; {
		case c.limiter == nil:
			*c = counted{lim, key}
			return false
		case c.key == key && inside.Core.CountsAs(c.limiter, lim):
			return true
		}
	}
	return false
}

// identity returns a number that identifies the headers of a response, if they are an http.Header. For
// other types of headers it always returns 1.
func identity(h Header) uintptr {
	if h, ok := h.(http.Header); ok {
		return reflect.ValueOf(h).Pointer()
	}
	return 1
}

// holdsSlot reports whether the request with the response headers h already holds a slot of lim and
// key. An outer middleware has then taken the slot.
func (s *RequestState) holdsSlot(h Header, lim *core.Limiter, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.slots, func(held slot) bool {
		return held.header == identity(h) && held.key == key && inside.Core.CountsAs(held.limiter, lim)
	})
}

// noteSlot records that the request holds a slot, until forgetSlot is called with an equal slot.
func (s *RequestState) noteSlot(taken slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = append(s.slots, taken)
}

// forgetSlot records that the request no longer holds a slot.
func (s *RequestState) forgetSlot(freed slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.slots, freed); i >= 0 {
		s.slots = slices.Delete(s.slots, i, i+1)
	}
}

// A cost is the argument of one call of SetCost.
type cost struct {
	n       int64
	charged atomic.Bool // whether a middleware has charged it
}

// Result returns the Result of the tightest decision about the request. It returns false if there is none.
// s may be nil.
func (s *RequestState) Result() (core.Result, bool) {
	if s == nil {
		return core.Result{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result, s.result.Source != core.SourceNone
}

// Logger returns the logger of the limiter that a middleware has used last, or the default logger if there is
// none. The method Logger of an adapter's request returns this logger; see [keyfunc.LoggingRequest]. s may be nil.
func (s *RequestState) Logger() *slog.Logger {
	if s == nil || s.limiter.Load() == nil {
		return slog.Default()
	}
	lim := s.limiter.Load()
	return lim.Logger().With("limiter", lim.Name())
}

// SetCost sets the actual cost of the request to n. Each middleware of the request with [guard.CostAfter]
// charges it when the response ends. If SetCost is called several times before that, the last call counts.
// The function SetCost of an adapter calls this method. SetCost does nothing if s is nil.
func (s *RequestState) SetCost(n int64) {
	if s == nil {
		return
	}
	s.cost.Store(&cost{n: n})
	switch s.charges.Load() {
	case 0:
		s.warn("SetCost was called in a request that passes no middleware with guard.CostAfter: without it the cost is ignored")
	case hasCharged:
		s.warn("SetCost was called when the response had ended, and what was reserved had been charged: call it before that")
	}
}

// warn logs message to the logger of the limiter that a middleware has used last, once for each limiter. It
// does nothing if no middleware has used a limiter.
func (s *RequestState) warn(message string) {
	if lim := s.limiter.Load(); lim != nil {
		inside.Core.WarnOnce(context.Background(), lim, message)
	}
}

// An otherNames describes the headers of middlewares whose HeaderPrefix differs from the prefix of
// the first middleware.
type otherNames struct {
	limit string // the name of the Limit header, which identifies all three names
	shown *shown
}

// shownAs returns the record of the Result that the headers with the given names show. Each prefix has a
// record of its own, because a tighter Result replaces only headers with the same prefix. The caller holds
// s.mu, also while it uses the record.
func (s *RequestState) shownAs(names *settings.Names) *shown {
	if s.names == nil {
		s.names = names
	}
	if s.names == names || s.names.Limit == names.Limit {
		return &s.xRateLimit
	}
	for _, other := range s.others {
		if other.limit == names.Limit {
			return other.shown
		}
	}
	s.others = append(s.others, otherNames{names.Limit, new(shown)})
	return s.others[len(s.others)-1].shown
}

// A shown is the Result that headers show, reduced to the fields that Tighter compares. With two complete
// Results in each RequestState instead, a request took 10 % longer.
type shown struct {
	allowed                bool
	source                 core.Source
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	window                 time.Duration
}

// replace records res in s if res is tighter than s, or if s is empty. It reports whether it has done so.
func (s *shown) replace(res *core.Result) bool {
	if s.source != core.SourceNone && !res.Tighter(core.Result{
		Allowed: s.allowed, Source: s.source, Limit: s.limit, Remaining: s.remaining, RetryAfter: s.retryAfter, ResetAfter: s.resetAfter,
		Window: s.window,
	}) {
		return false
	}
	*s = shown{res.Allowed, res.Source, res.Limit, res.Remaining, res.RetryAfter, res.ResetAfter, res.Window}
	return true
}
