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
	limiter atomic.Pointer[core.Limiter] // the limiter that was last asked
	cost    atomic.Pointer[cost]         // the last argument of SetCost; nil before the first call
	charges atomic.Int32                 // 0 if no middleware has CostAfter; otherwise chargesLater or hasCharged
	refused atomic.Int32                 // the status, 503 or 499, with which a middleware refused the request; otherwise 0

	// mu guards the fields below. Middlewares of one request can run at the same time: a middleware
	// inside http.TimeoutHandler continues after the timeout, and a handler may serve several requests
	// within one.
	mu         sync.Mutex
	result     core.Result     // the tightest so far
	names      *settings.Names // how the first middleware with XRateLimit names the headers of this set
	xRateLimit shown           // the Result that the headers with these names show
	others     []otherNames    // the same for the names of other middlewares
	ietf       shown           // the Result that the headers of the set IETF show
	values     [3]string       // the X-RateLimit headers that the first middleware set
	text       [64]byte        // a buffer for formatting them
	header     uintptr         // identity of the response headers that the first middleware saw
	counted    [2]counted      // how the first two middlewares counted the request
	slots      []slot          // the slots that the request holds now
}

// A slot is a slot of InFlight that a request holds while it is served.
type slot struct {
	counted

	header uintptr // identity of the response headers
}

// The values of RequestState.charges if a middleware has CostAfter: whether a middleware has charged
// the cost already.
const (
	chargesLater int32 = 1 + iota
	hasCharged
)

// A counted says how a middleware counted a request: with which limiter, and by which key.
type counted struct {
	limiter *core.Limiter
	key     string
}

// countsAgain reports whether a middleware further out has already counted the request with lim and
// key. If not, it records that the request is counted now. If a handler serves several requests
// within one, each of them has response headers of its own, and these requests are not compared.
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

// identity returns a number that differs between the headers of two responses, if they are of
// net/http.
func identity(h Header) uintptr {
	if h, ok := h.(http.Header); ok {
		return reflect.ValueOf(h).Pointer()
	}
	return 1
}

// holdsSlot reports whether the request with the response headers h already holds a slot of lim and
// key, which a middleware further out has taken.
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

// Result returns the tightest decision about the request. It returns false if there is none.
func (s *RequestState) Result() (core.Result, bool) {
	if s == nil {
		return core.Result{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result, s.result.Source != core.SourceNone
}

// Logger returns the logger of the limiter that was last asked, or nil if there is none. The method
// Logger of an adapter's request returns it; see [keyfunc.LoggingRequest]. s may be nil.
func (s *RequestState) Logger() *slog.Logger {
	if s == nil || s.limiter.Load() == nil {
		return nil
	}
	lim := s.limiter.Load()
	return lim.Logger().With("limiter", lim.Name())
}

// SetCost makes the middlewares of the request that have [guard.CostAfter] charge n units. An
// adapter's function SetCost calls it. SetCost does nothing if s is nil.
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

// warn logs message once, to the logger of the limiter that was last asked.
func (s *RequestState) warn(message string) {
	if lim := s.limiter.Load(); lim != nil {
		inside.Core.WarnOnce(context.Background(), lim, message)
	}
}

// An otherNames describes the headers of middlewares whose HeaderPrefix differs from the prefix of
// the first middleware.
type otherNames struct {
	limit string // the first of the names, which identifies them all
	shown *shown
}

// shownAs returns the record of what the headers with the given names show. Each prefix has a
// record of its own, because a tighter limit replaces another one only under the same prefix.
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

// A shown is the Result that the headers show, reduced to the fields that Tighter compares. With
// two complete Results in each RequestState, a request took 10 % longer.
type shown struct {
	allowed                bool
	source                 core.Source
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	window                 time.Duration
}

// replace reports whether res is tighter than s, and if so records res.
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
