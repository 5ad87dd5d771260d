package guard

import (
	"strconv"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A Header is where the headers of a response are set. An http.Header is one.
type Header interface {
	Set(name, value string)
}

// The headers of a limited response. The X-RateLimit ones are what GitHub,
// Twitter and most APIs since send; Retry-After is RFC 9110, section 10.2.3.
const (
	headerLimit      = "X-Ratelimit-Limit"
	headerRemaining  = "X-Ratelimit-Remaining"
	headerReset      = "X-Ratelimit-Reset"
	headerRetryAfter = "Retry-After"
)

func setHeaders(h Header, res core.Result) {
	h.Set(headerLimit, strconv.FormatInt(res.Limit, 10))
	h.Set(headerRemaining, strconv.FormatInt(res.Remaining, 10))
	h.Set(headerReset, strconv.FormatInt(unixCeil(res.At.Add(res.ResetAfter)), 10))
	if !res.Allowed && res.RetryAfter != core.Never {
		h.Set(headerRetryAfter, strconv.FormatInt(secondsCeil(res.RetryAfter), 10))
	}
}

// unixCeil returns t in Unix seconds, rounded up: a client that waits until then
// is never early.
func unixCeil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// secondsCeil returns d in whole seconds, rounded up and at least 1: clients
// take 0 for "at once".
func secondsCeil(d time.Duration) int64 {
	return max(1, int64((d-1)/time.Second)+1)
}
