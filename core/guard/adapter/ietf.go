package adapter

import (
	"strconv"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard/internal/format"
)

// setIETF lists every limit in RateLimit-Policy and RateLimit, as specified by
// draft-ietf-httpapi-ratelimit-headers-11 of 23 May 2026. The names are strings of RFC 9651; a
// valid name has no character that needs escaping.
func (o headers) setIETF(h Header, res *core.Result, draw float64) {
	policy, state := make([]byte, 0, 128), make([]byte, 0, 128)
	for each := range res.All() {
		name := format.PolicyName(res, &each)
		if len(policy) > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		policy = strconv.AppendQuote(policy, name)
		policy = appendParameter(policy, 'q', each.Limit)
		if each.Window > 0 {
			policy = appendParameter(policy, 'w', format.SecondsCeil(each.Window))
		} else {
			policy = append(policy, `;qu="concurrent-requests"`...)
		}

		state = strconv.AppendQuote(state, name)
		state = appendParameter(state, 'r', each.Remaining)
		switch {
		case each.Allowed && each.Window > 0:
			state = appendParameter(state, 't', max(format.SecondsCeil(each.ResetAfter), atPace(&each)))
		case each.Allowed: // nobody knows when slots become free
		case each.RetryAfter != core.Never:
			t := o.retryIn(each.RetryAfter, time.Second, draw)
			state = appendParameter(state, 't', min(t, o.retryIn(res.RetryAfter, time.Second, draw))) // no t is later than Retry-After
		}
	}
	h.Set(headerPolicy, string(policy))
	h.Set(headerRateLimit, string(state))
}

// atPace returns in how many seconds a limit gives out its remaining units at its own rate, rounded up.
// A client that spreads the remaining units over t must not be faster than the limit (q units in w
// seconds), so t must not be shorter than what atPace returns. Section 6 of the draft asks for such a
// bound. The product cannot overflow: a window is at most 100 years, and a limit at most 1e9. For a
// limit of 0, which has no rate, atPace returns 0.
func atPace(each *core.Result) int64 {
	if each.Limit == 0 {
		return 0
	}
	return (format.SecondsCeil(each.Window)*each.Remaining + each.Limit - 1) / each.Limit
}

// appendParameter appends a parameter of RFC 9651, such as ";q=100".
func appendParameter(b []byte, name byte, value int64) []byte {
	return strconv.AppendInt(append(b, ';', name, '='), value, 10)
}
