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

// The names of the headers whose names are fixed, as net/http writes them. Retry-After is RFC 9110,
// section 10.2.3; ietf.go names the draft of Ratelimit and Ratelimit-Policy.
const (
	headerRetryAfter = "Retry-After"
	headerRetryMs    = "Retry-After-Ms"
	headerPolicy     = "Ratelimit-Policy"
	headerRateLimit  = "Ratelimit"
	headerExpose     = "Access-Control-Expose-Headers"
)

// The sets of headers, as the settings have them.
const (
	xRateLimit = uint8(guard.XRateLimit)
	ietf       = uint8(guard.IETF)
)

// usualNames are the names of the set XRateLimit without guard.HeaderPrefix.
var usualNames = settings.NewNames("X-RateLimit-")

// defaultHeaders returns the headers of a middleware that has no option about headers.
func defaultHeaders() settings.Headers { return settings.Headers{Sets: xRateLimit, Names: usualNames} }

// headers writes the headers of a response.
type headers settings.Headers

// set writes res, except where the headers have a tighter Result of a middleware further out. draw
// is that of the answer: see retryIn. Where nothing is limited there are no numbers to write; a ban
// has a Retry-After there, too.
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

// setRetry says when to come back: after d, or by the options for crowds.
func (o headers) setRetry(h Header, d time.Duration, draw float64) {
	h.Set(headerRetryAfter, strconv.FormatInt(o.retryIn(d, time.Second, draw), 10))
	if o.Millis {
		h.Set(headerRetryMs, strconv.FormatInt(o.retryIn(d, time.Millisecond, draw), 10))
	}
}

// retryIn returns in how many units a client is told to come back that would be admitted after d:
// no earlier, at least 1, because clients take 0 for "at once", and with RetryJitter at most that
// share of d later. draw, from 0 to 1, says where between; all parts of an answer have the same.
// What is longer than MaxRetryAfter becomes that, or by the jitter less: clients denied together
// would all come back after it. Whole units are drawn evenly, so that seconds spread as well.
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

// setXRateLimit formats the three numbers, of slots two, in one string, for one allocation. It
// assigns to http.Header, a map, because Set would allocate a slice for each value.
func (o headers) setXRateLimit(h Header, res *core.Result, state *RequestState) {
	text := strconv.AppendInt(state.text[:0], res.Limit, 10)
	limit := len(text)
	text = strconv.AppendInt(text, res.Remaining, 10)
	remaining := len(text)
	if res.Window == 0 {
		h.Del(o.Names.Reset) // slots are not reset: it would be that of a middleware further out
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
	if values[0] != "" { // in the headers since an outer middleware, and net/http may be reading them
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

// reset returns the value of X-RateLimit-Reset. In Unix time it is the same throughout a fixed
// window, because At is of the clock that decided.
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

// setExposed adds the headers in use to those that the application already exposes.
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
