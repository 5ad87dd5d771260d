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

// A RequestState is what the middlewares of one request have decided so far. An adapter keeps one
// with each request, for handlers and for stacked middlewares.
type RequestState struct {
	limiter atomic.Pointer[core.Limiter] // of the middleware that ran last
	cost    atomic.Pointer[cost]         // that SetCost was last given, or nil
	charges atomic.Int32                 // whether what SetCost is given is charged: 0 where no middleware has CostAfter
	refused atomic.Int32                 // 503 or 499, if a middleware called no handler because of that

	// Middlewares of one request can run at the same time: one inside of http.TimeoutHandler goes
	// on after the timeout, and a handler may serve several requests in one.
	mu         sync.Mutex
	result     core.Result     // the tightest
	names      *settings.Names // of the headers of the set XRateLimit in the first middleware that set these
	xRateLimit shown           // what is in the headers with these names
	others     []otherNames    // and in those with further names
	ietf       shown           // and in the headers of the set IETF
	values     [3]string       // the X-RateLimit headers that the first middleware set
	text       [64]byte        // in which they are formatted
	header     uintptr         // of the response, as the first middleware saw it
	counted    [2]counted      // by those that came first
	slots      []slot          // that the request holds now
}

// A slot is one that a request holds while it is served.
type slot struct {
	counted

	header uintptr // of the response
}

// With CostAfter, charges says whether the middleware has charged already.
const (
	chargesLater int32 = 1 + iota
	hasCharged
)

// A counted is by what a middleware has counted the request.
type counted struct {
	limiter *core.Limiter
	key     string
}

// countsAgain reports whether a middleware further out has counted the request by lim and key, and
// notes that they have. A handler that serves several requests in one has another header for each
// of them: those do not count.
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

// identity tells the headers of two responses apart.
func identity(h Header) uintptr {
	if h, ok := h.(http.Header); ok {
		return reflect.ValueOf(h).Pointer()
	}
	return 1
}

// holdsSlot reports whether the request with the response header h holds a slot of lim and key
// already: a middleware further out has taken it.
func (s *RequestState) holdsSlot(h Header, lim *core.Limiter, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.slots, func(held slot) bool {
		return held.header == identity(h) && held.key == key && inside.Core.CountsAs(held.limiter, lim)
	})
}

// noteSlot notes that the request holds a slot until forgetSlot is called with the same.
func (s *RequestState) noteSlot(taken slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = append(s.slots, taken)
}

func (s *RequestState) forgetSlot(freed slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.slots, freed); i >= 0 {
		s.slots = slices.Delete(s.slots, i, i+1)
	}
}

// A cost is what SetCost was given.
type cost struct {
	n       int64
	charged atomic.Bool // by a middleware that is through
}

// Result returns the tightest decision. It reports false if there is none.
func (s *RequestState) Result() (core.Result, bool) {
	if s == nil {
		return core.Result{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result, s.result.Source != core.SourceNone
}

// Logger returns the logger of the limiter that decides now, or nil if there is none. The method
// Logger of an adapter's request returns it; see [keyfunc.LoggingRequest].
func (s *RequestState) Logger() *slog.Logger {
	if s == nil || s.limiter.Load() == nil {
		return nil
	}
	lim := s.limiter.Load()
	return lim.Logger().With("limiter", lim.Name())
}

// SetCost has the middlewares of the request with [guard.CostAfter] charge n units. The function
// SetCost of an adapter calls it. It does nothing if s is nil.
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

func (s *RequestState) warn(message string) {
	if lim := s.limiter.Load(); lim != nil {
		inside.Core.WarnOnce(context.Background(), lim, message)
	}
}

// An otherNames is what is shown under the names of a middleware whose HeaderPrefix is not the one of
// the first middleware.
type otherNames struct {
	limit string // the first of the names
	shown *shown
}

// shownAs returns what the headers with the given names show. Each prefix has headers of its own: the
// tighter of two limits hides the other only under one prefix.
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

// A shown is the Result that the headers have, as far as Tighter compares it. With two whole
// Results in each RequestState, a request took 10 % longer.
type shown struct {
	allowed                bool
	source                 core.Source
	limit, remaining       int64
	retryAfter, resetAfter time.Duration
	window                 time.Duration
}

// replace reports whether res is tighter than s, and records it if so.
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
