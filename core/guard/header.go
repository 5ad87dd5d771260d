package guard

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A Header is where the headers of a response are set. An http.Header is one.
type Header interface {
	Get(name string) string
	Set(name, value string)
}

// A byteHeader is a Header that copies what it is given.
type byteHeader interface {
	SetBytes(name string, value []byte)
}

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

// headers says how decisions are told.
type headers struct {
	sets   HeaderSet
	delta  bool
	expose bool
}

// set tells res, unless a middleware further out has told a tighter one.
func (o headers) set(h Header, limiter string, res *core.Result, seen *Seen) {
	if o.sets&XRateLimit != 0 && seen.xRateLimit.tell(res) {
		o.setXRateLimit(h, res, seen)
	}
	if o.sets&IETF != 0 && seen.ietf.tell(res) {
		setIETF(h, limiter, *res)
	}
	if o.sets != 0 && !res.Allowed && res.RetryAfter != core.Never {
		h.Set(headerRetryAfter, strconv.FormatInt(max(1, secondsCeil(res.RetryAfter)), 10)) // clients take 0 for "at once"
	}
	if o.expose && o.sets != 0 {
		o.setExposed(h)
	}
}

// setXRateLimit writes the three numbers into one text. An http.Header gets its
// values from an array in seen, which spares the slice that Set would make of each;
// what copies bytes needs no strings at all.
func (o headers) setXRateLimit(h Header, res *core.Result, seen *Seen) {
	text := strconv.AppendInt(seen.room[:0], res.Limit, 10)
	limit := len(text)
	text = strconv.AppendInt(text, res.Remaining, 10)
	remaining := len(text)
	text = strconv.AppendInt(text, o.reset(res), 10)
	if h, ok := h.(byteHeader); ok {
		h.SetBytes(headerLimit, text[:limit])
		h.SetBytes(headerRemaining, text[limit:remaining])
		h.SetBytes(headerReset, text[remaining:])
		return
	}
	all := string(text)
	seen.values = [3]string{all[:limit], all[limit:remaining], all[remaining:]}
	for i, name := range [3]string{headerLimit, headerRemaining, headerReset} {
		if native, ok := h.(http.Header); ok {
			native[name] = seen.values[i : i+1 : i+1]
		} else {
			h.Set(name, seen.values[i])
		}
	}
}

// reset returns X-RateLimit-Reset. In Unix time it is constant through a fixed
// window, as it derives from the clock that decided.
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

// secondsCeil returns d in whole seconds, rounded up: who waits that long is
// never early.
func secondsCeil(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// setExposed adds the headers in use to those that the application exposes.
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
