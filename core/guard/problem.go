package guard

import (
	"encoding/json"
	"net/http"
)

// ProblemType is the media type of a [Problem].
const ProblemType = "application/problem+json"

// Problem returns the body of a response with status: problem details (RFC 9457).
// Those of a 429 have the type which the IETF draft on rate limit headers registers
// for exceeded quotas.
func Problem(status int) []byte {
	details := struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
	}{"about:blank", http.StatusText(status), status}
	if status == http.StatusTooManyRequests {
		details.Type = "https://iana.org/assignments/http-problem-types#quota-exceeded"
		details.Title = "Request cannot be satisfied as assigned quota has been exceeded"
	}
	body, _ := json.Marshal(details) // strings and an integer always marshal
	return body
}
