package adapter

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/internal/format"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
)

// The names of the headers, as net/http writes them. Retry-After is RFC 9110, section 10.2.3; ietf.go
// names the draft of Ratelimit and Ratelimit-Policy.
const (
	headerLimit      = "X-Ratelimit-Limit"
	headerRemaining  = "X-Ratelimit-Remaining"
	headerReset      = "X-Ratelimit-Reset"
	headerRetryAfter = "Retry-After"
	headerPolicy     = "Ratelimit-Policy"
	headerRateLimit  = "Ratelimit"
	headerExpose     = "Access-Control-Expose-Headers"
)

// The sets of headers, as the settings have them.
const (
	xRateLimit = uint8(guard.XRateLimit)
	ietf       = uint8(guard.IETF)
)

// headers writes the headers of a response.
type headers settings.Headers

// set writes res, except where the headers have a tighter Result of a middleware
// further out.
func (o headers) set(h Header, res *core.Result, state *RequestState) {
	if o.OnDenial && res.Allowed {
		return
	}
	if o.Sets&xRateLimit != 0 && state.xRateLimit.replace(res) {
		o.setXRateLimit(h, res, state)
	}
	if o.Sets&ietf != 0 && state.ietf.replace(res) {
		setIETF(h, res)
	}
	if !res.Allowed && res.RetryAfter != core.Never {
		h.Set(headerRetryAfter, strconv.FormatInt(format.RetrySeconds(res), 10))
	}
	if o.Expose {
		o.setExposed(h)
	}
}

// setXRateLimit formats the three numbers, of slots two, in one string, for one allocation. It
// assigns to http.Header, a map, because Set would allocate a slice for each value.
func (o headers) setXRateLimit(h Header, res *core.Result, state *RequestState) {
	text := strconv.AppendInt(state.text[:0], res.Limit, 10)
	limit := len(text)
	text = strconv.AppendInt(text, res.Remaining, 10)
	remaining := len(text)
	if res.Window == 0 {
		h.Del(headerReset) // slots are not reset: it would be that of a middleware further out
	} else {
		text = strconv.AppendInt(text, o.reset(res), 10)
	}
	if h, ok := h.(BytesHeader); ok {
		h.SetBytes(headerLimit, text[:limit])
		h.SetBytes(headerRemaining, text[limit:remaining])
		if res.Window > 0 {
			h.SetBytes(headerReset, text[remaining:])
		}
		return
	}
	values := &state.values
	if values[0] != "" { // in the headers since an outer middleware, and net/http may be reading them
		values = new([3]string)
	}
	all := string(text)
	*values = [3]string{all[:limit], all[limit:remaining], all[remaining:]}
	for i, name := range [3]string{headerLimit, headerRemaining, headerReset} {
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

// reset returns X-RateLimit-Reset. In Unix time it is the same throughout a fixed
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
	if o.Sets&xRateLimit != 0 {
		names = append(names, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
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
