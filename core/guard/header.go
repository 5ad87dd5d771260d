package guard

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A HeaderSet is a choice of headers.
type HeaderSet uint8

const (
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, as GitHub and most APIs
	// since send them.
	XRateLimit HeaderSet = 1 << iota
	// IETF is RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers,
	// as structured fields (RFC 9651).
	IETF
)

// The names of the headers, as net/http writes them. Retry-After is RFC 9110,
// section 10.2.3.
const (
	headerLimit      = "X-Ratelimit-Limit"
	headerRemaining  = "X-Ratelimit-Remaining"
	headerReset      = "X-Ratelimit-Reset"
	headerRetryAfter = "Retry-After"
	headerPolicy     = "Ratelimit-Policy"
	headerRateLimit  = "Ratelimit"
	headerExpose     = "Access-Control-Expose-Headers"
)

// headers says which headers a response has, and how they are written.
type headers struct {
	sets     HeaderSet
	onDenial bool // and on nothing else
	delta    bool
	expose   bool
}

// set writes res, except where the headers have a tighter Result of a middleware
// further out.
func (o headers) set(h Header, res *core.Result, seen *Seen) {
	if o.onDenial && res.Allowed {
		return
	}
	if o.sets&XRateLimit != 0 && seen.xRateLimit.replace(res) {
		o.setXRateLimit(h, res, seen)
	}
	if o.sets&IETF != 0 && seen.ietf.replace(res) {
		setIETF(h, res)
	}
	if !res.Allowed && res.RetryAfter != core.Never {
		h.Set(headerRetryAfter, strconv.FormatInt(retrySeconds(res), 10))
	}
	if o.expose {
		o.setExposed(h)
	}
}

// setXRateLimit formats the three numbers, of slots two, in one string, for one allocation. It
// assigns to http.Header, a map, because Set would allocate a slice for each value.
func (o headers) setXRateLimit(h Header, res *core.Result, seen *Seen) {
	text := strconv.AppendInt(seen.text[:0], res.Limit, 10)
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
	values := &seen.values
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
	if o.delta {
		return secondsCeil(res.ResetAfter)
	}
	at := res.At.Add(res.ResetAfter)
	if at.Nanosecond() > 0 {
		return at.Unix() + 1
	}
	return at.Unix()
}

// retrySeconds returns RetryAfter in whole seconds, and at least 1: clients take 0
// for "at once".
func retrySeconds(res *core.Result) int64 { return max(1, secondsCeil(res.RetryAfter)) }

// secondsCeil returns d in whole seconds, rounded up: a client that waits that
// long is never early.
func secondsCeil(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// setExposed adds the headers in use to those that the application already exposes.
func (o headers) setExposed(h Header) {
	names := []string{headerRetryAfter}
	if o.sets&XRateLimit != 0 {
		names = append(names, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
	}
	if o.sets&IETF != 0 {
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
