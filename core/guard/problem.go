package guard

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard/internal/format"
)

// ProblemType is the media type of a [Problem].
const ProblemType = "application/problem+json"

// statusClientGone is the status that nginx logs for requests whose client has left. net/http has
// no text for it.
const statusClientGone = 499

// A problem is the body that Problem returns: problem details (RFC 9457), with extension members about a
// denied request.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`

	ViolatedPolicies []string `json:"violated-policies,omitempty"` //nolint:tagliatelle // the draft's name
	Limit            *int64   `json:"limit,omitempty"`
	RetryAfter       int64    `json:"retry-after,omitempty"` //nolint:tagliatelle // as the draft writes names
}

// Problem returns a body for a response with the given status: problem details (RFC 9457) in JSON,
// and a newline. For a 429, the type is the one that the IETF draft on rate limit headers registers
// for exceeded quotas.
//
// Error handlers pass the error that they receive as err, which can be nil. If err is or wraps a
// [DeniedError], and the middleware does not have [NoHeaders], the body tells more. During a ban (see
// [core.Ban]), the type is the draft's type for abnormal usage. Whether or not there is a ban, the body
// also has the members
// "violated-policies", "limit" and "retry-after". "violated-policies", which the draft defines, has
// the names of the limits that denied, as they appear in RateLimit-Policy. "limit" is the capacity.
// "retry-after" is the number of seconds in Retry-After, if the response has that header. If a key
// without a limit is banned (see [core.Unlimited]), there is only "retry-after".
func Problem(status int, err error) []byte {
	details := problem{Type: "about:blank", Title: http.StatusText(status), Status: status}
	if status == statusClientGone {
		details.Title = "Client Closed Request"
	}
	if status == http.StatusTooManyRequests {
		details.Type = "https://iana.org/assignments/http-problem-types#quota-exceeded"
		details.Title = "Request cannot be satisfied as assigned quota has been exceeded"
	}
	if denied := (*DeniedError)(nil); errors.As(err, &denied) && !denied.Hidden {
		if denied.Result.Banned && status == http.StatusTooManyRequests {
			details.Type = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
			details.Title = "Request not satisfied due to detection of abnormal request pattern"
		}
		details.extend(&denied.Result)
		if denied.RetryAfter > 0 {
			details.RetryAfter = format.SecondsCeil(denied.RetryAfter)
		}
	}
	body, _ := json.Marshal(details) // strings and integers always marshal
	return append(body, '\n')
}

// extend adds the members about the denial res. The caller must replace RetryAfter if the header
// Retry-After has another value.
func (p *problem) extend(res *core.Result) {
	if !res.Unlimited() {
		for each := range res.All() {
			if !each.Allowed {
				p.ViolatedPolicies = append(p.ViolatedPolicies, format.PolicyName(res, &each))
			}
		}
		p.Limit = &res.Limit
	}
	if res.RetryAfter != core.Never {
		p.RetryAfter = format.RetrySeconds(res)
	}
}
