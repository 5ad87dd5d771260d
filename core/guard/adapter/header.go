package adapter

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/internal/format"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
)

// The names of the headers that HeaderPrefix does not change, in the canonical form of net/http.
// Retry-After is defined in RFC 9110, section 10.2.3. The headers of the set IETF are defined in the
// draft that is cited in ietf.go.
const (
	headerRetryAfter = "Retry-After"
	headerRetryMs    = "Retry-After-Ms"
	headerPolicy     = "Ratelimit-Policy"
	headerRateLimit  = "Ratelimit"
	headerExpose     = "Access-Control-Expose-Headers"
)

// The sets of headers, in the type that the settings use.
const (
	xRateLimit = uint8(guard.XRateLimit)
	ietf       = uint8(guard.IETF)
)

// usualNames are the names of the set XRateLimit if the option [guard.HeaderPrefix] is not given.
var usualNames = settings.NewNames("X-RateLimit-")

// defaultHeaders returns the settings of a middleware to which no option about headers is given.
func defaultHeaders() settings.Headers { return settings.Headers{Sets: xRateLimit, Names: usualNames} }

// headers writes the headers of a response. Its fields are the settings for them.
type headers settings.Headers

// set writes the headers about res. A middleware of the same adapter further out may already have written
// X-RateLimit headers or headers of the set IETF about a tighter Result: set does not change these. draw is
// the random number of the answer; see retryIn. If res is Unlimited, set writes no numbers, but a denial by
// a ban still gets a Retry-After. The caller holds the lock of state.
func (o headers) set(h Header, res *core.Result, draw float64, state *RequestState) {
	unlimited := res.Unlimited()
	if o.Sets == 0 || (o.OnDenial || unlimited) && res.Allowed {
		return
	}
	if o.Sets&xRateLimit != 0 && !unlimited && state.shownAs(o.Names).replace(res) {
		o.setXRateLimit(h, res, state)
	}
	if o.Sets&ietf != 0 && !unlimited && state.ietf.replace(res) {
		o.setIETF(h, res, draw)
	}
	if !res.Allowed && res.RetryAfter != core.Never {
		o.setRetry(h, res.RetryAfter, draw)
	}
	if o.Expose {
		o.setExposed(h)
	}
}

// setRetry writes Retry-After, and Retry-After-Ms if it is wanted, for a request that would be admitted
// after d.
func (o headers) setRetry(h Header, d time.Duration, draw float64) {
	h.Set(headerRetryAfter, strconv.FormatInt(o.retryIn(d, time.Second, draw), 10))
	if o.Millis {
		h.Set(headerRetryMs, strconv.FormatInt(o.retryIn(d, time.Millisecond, draw), 10))
	}
}

// retryIn returns the wait that a client sees, in the given unit of time, for a request that would be
// admitted after d.
//
// The wait is a whole number of units from a range. draw, which is at least 0 and below 1, chooses it,
// and is the same for all parts of an answer. Every number in the range is equally likely. The range
// is:
//
//   - By default, only d itself.
//   - With RetryJitter, from d to d plus the share of d that was given to RetryJitter.
//   - With MaxRetryAfter, the range ends at MaxRetryAfter at the latest. If d is longer than MaxRetryAfter,
//     the range begins at MaxRetryAfter/(1+share): otherwise all clients that are denied together would come
//     back after exactly MaxRetryAfter, in spite of RetryJitter.
//
// The beginning of the range is rounded up, so that a client does not come back too early. It is at
// least 1, because clients take 0 as an invitation to retry at once.
func (o headers) retryIn(d, unit time.Duration, draw float64) int64 {
	from, to := d, d+time.Duration(float64(d)*o.Jitter)
	if o.MaxRetry > 0 && from > o.MaxRetry {
		from = time.Duration(float64(o.MaxRetry) / (1 + o.Jitter))
	}
	if o.MaxRetry > 0 {
		to = min(to, o.MaxRetry)
	}
	first := max(1, format.Ceil(from, unit))
	last := max(first, int64(to/unit))
	return first + int64(draw*float64(last-first+1))
}

// setXRateLimit writes the three headers, or two for slots, which have no reset. Unless h is a BytesHeader,
// the values are parts of one string, which takes one allocation. setXRateLimit assigns to an http.Header
// as to a map, because Set would allocate a slice for each value. It uses the buffers of state, so the
// caller must hold the lock of state.
func (o headers) setXRateLimit(h Header, res *core.Result, state *RequestState) {
	text := strconv.AppendInt(state.text[:0], res.Limit, 10)
	limit := len(text)
	text = strconv.AppendInt(text, res.Remaining, 10)
	remaining := len(text)
	if res.Window == 0 {
		h.Del(o.Names.Reset) // slots have no reset, and the value of a middleware further out does not belong to them
	} else {
		text = strconv.AppendInt(text, o.reset(res), 10)
	}
	if h, ok := h.(BytesHeader); ok {
		h.SetBytes(o.Names.Limit, text[:limit])
		h.SetBytes(o.Names.Remaining, text[limit:remaining])
		if res.Window > 0 {
			h.SetBytes(o.Names.Reset, text[remaining:])
		}
		return
	}
	values := &state.values
	if values[0] != "" { // an earlier decision has put these values into the headers, which net/http may be reading
		values = new([3]string)
	}
	all := string(text)
	*values = [3]string{all[:limit], all[limit:remaining], all[remaining:]}
	for i, name := range [3]string{o.Names.Limit, o.Names.Remaining, o.Names.Reset} {
		if values[i] == "" {
			continue
		}
		if native, ok := h.(http.Header); ok {
			native[name] = values[i : i+1 : i+1]
		} else {
			h.Set(name, values[i])
		}
	}
}

// reset returns the value of X-RateLimit-Reset: Unix time or, with ResetInSeconds, seconds from now. In
// a fixed window, the Unix time is usually the same for every response, because At and ResetAfter come
// from the same clock.
func (o headers) reset(res *core.Result) int64 {
	if o.Delta {
		return format.SecondsCeil(res.ResetAfter)
	}
	at := res.At.Add(res.ResetAfter)
	if at.Nanosecond() > 0 {
		return at.Unix() + 1
	}
	return at.Unix()
}

// setExposed adds to Access-Control-Expose-Headers the names of all headers that the settings allow, even
// if this response does not have them. Names that the application has put there stay. If they are in several
// lines of an http.Header, setExposed joins these lines. (In Fiber, Set changes only the first line.)
func (o headers) setExposed(h Header) {
	names := []string{headerRetryAfter}
	if o.Millis {
		names = append(names, headerRetryMs)
	}
	if o.Sets&xRateLimit != 0 {
		names = append(names, o.Names.Prefix+"Limit", o.Names.Prefix+"Remaining", o.Names.Prefix+"Reset")
	}
	if o.Sets&ietf != 0 {
		names = append(names, "RateLimit", "RateLimit-Policy")
	}
	before := h.Get(headerExpose)
	if native, ok := h.(http.Header); ok {
		before = strings.Join(native[headerExpose], ",") // Set deletes all lines, but Get returns only the first
	}
	var exposed []string
	for name := range strings.SplitSeq(before, ",") {
		if name = strings.TrimSpace(name); name != "" {
			exposed = append(exposed, name)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(exposed, func(other string) bool { return strings.EqualFold(name, other) }) {
			exposed = append(exposed, name)
		}
	}
	h.Set(headerExpose, strings.Join(exposed, ", "))
}
