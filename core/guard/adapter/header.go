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

// The names of headers that HeaderPrefix does not change, in the canonical form of net/http. RFC 9110,
// section 10.2.3, defines Retry-After, and the draft that ietf.go names defines the ones of IETF.
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

// usualNames are the names of the set XRateLimit without [guard.HeaderPrefix].
var usualNames = settings.NewNames("X-RateLimit-")

// defaultHeaders returns the settings of a middleware that has no option about headers.
func defaultHeaders() settings.Headers { return settings.Headers{Sets: xRateLimit, Names: usualNames} }

// headers writes the headers of a response.
type headers settings.Headers

// set writes the headers about res. It leaves headers alone that already show a tighter Result,
// from a middleware further out. draw is the random number of the answer; see retryIn. If res has
// no limit, there are no numbers to write, but a denial by a ban still has a Retry-After.
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

// setRetry tells the client to come back after d, changed by the options RetryJitter and
// MaxRetryAfter.
func (o headers) setRetry(h Header, d time.Duration, draw float64) {
	h.Set(headerRetryAfter, strconv.FormatInt(o.retryIn(d, time.Second, draw), 10))
	if o.Millis {
		h.Set(headerRetryMs, strconv.FormatInt(o.retryIn(d, time.Millisecond, draw), 10))
	}
}

// retryIn returns the wait that a client sees, in units, for a request that would be admitted after
// d.
//
// The wait is at least 1 unit, because clients take 0 as an invitation to retry at once. Unless
// MaxRetryAfter bounds it, the wait is not shorter than d. With RetryJitter it is longer by up to
// that share of d: draw, which is at least 0 and below 1, chooses the position in between, and is
// the same for all parts of an answer. If d is longer than MaxRetryAfter, the wait is drawn from
// MaxRetryAfter/(1+share) to MaxRetryAfter, because clients that are denied together would
// otherwise all come back after exactly MaxRetryAfter. Every whole number of units in the range is
// equally likely, so that whole seconds spread the clients as well.
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

// setXRateLimit formats the three numbers (two for slots, which have no reset) in one string, to
// allocate once. It assigns to an http.Header as to a map, because Set would allocate a slice for
// each value.
func (o headers) setXRateLimit(h Header, res *core.Result, state *RequestState) {
	text := strconv.AppendInt(state.text[:0], res.Limit, 10)
	limit := len(text)
	text = strconv.AppendInt(text, res.Remaining, 10)
	remaining := len(text)
	if res.Window == 0 {
		h.Del(o.Names.Reset) // slots have no reset: a value there would be from a middleware further out
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
	if values[0] != "" { // an outer middleware has put them into the headers, which net/http may be reading
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

// reset returns the value of X-RateLimit-Reset. In Unix time, the value stays the same throughout a
// fixed window, because both At and ResetAfter come from the clock that decided.
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

// setExposed adds the names of the headers in use to the names that the application already
// exposes.
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
	var exposed []string
	for name := range strings.SplitSeq(h.Get(headerExpose), ",") {
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
