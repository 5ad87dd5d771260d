package guard

import (
	"strconv"

	"github.com/redislimit/redislimit/core"
)

// setIETF lists every limit in RateLimit-Policy and RateLimit. The items are
// strings of RFC 9651; a valid name has no character that would need escaping.
func setIETF(h Header, res *core.Result) {
	several := severalLimits(res)
	policy, state := make([]byte, 0, 128), make([]byte, 0, 128)
	for each := range res.All() {
		name := policyName(&each, several)
		if len(policy) > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		policy = strconv.AppendQuote(policy, name)
		policy = appendParameter(policy, 'q', each.Limit)
		if each.Window > 0 {
			policy = appendParameter(policy, 'w', secondsCeil(each.Window))
		} else {
			policy = append(policy, `;qu="concurrent-requests"`...)
		}

		state = strconv.AppendQuote(state, name)
		state = appendParameter(state, 'r', each.Remaining)
		switch {
		case each.Allowed && each.Window > 0:
			state = appendParameter(state, 't', secondsCeil(each.ResetAfter))
		case each.Allowed: // slots
		case each.RetryAfter != core.Never:
			state = appendParameter(state, 't', retrySeconds(&each))
		}
	}
	h.Set(headerPolicy, string(policy))
	h.Set(headerRateLimit, string(state))
}

// severalLimits reports whether res is of more than one limit.
func severalLimits(res *core.Result) bool {
	limits := 0
	for range res.All() {
		limits++
	}
	return limits > 1
}

// policyName returns the name of a limit's policy: that of the limiter and, if there are
// several limits, of the limit.
func policyName(each *core.Result, several bool) string {
	if several {
		return each.Limiter + "-" + each.Name
	}
	return each.Limiter
}

func appendParameter(b []byte, name byte, value int64) []byte {
	return strconv.AppendInt(append(b, ';', name, '='), value, 10)
}
