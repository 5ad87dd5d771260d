package apps

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// An answer is the reply of a web app, without the parts that differ between two runs.
type answer struct {
	status                             int
	limit, remaining, retry, mediaType string
	challenge                          string
	body                               string
}

var numbers = regexp.MustCompile(`("retry-after":)\d+`)

// get sends a GET request with the user's name or the API key, either of which may be empty.
func (p *program) get(t *testing.T, path, user, key string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+path, http.NoBody)
	check.Need(t, err)
	if user != "" {
		r.SetBasicAuth(user, "any")
	}
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	res, err := http.DefaultClient.Do(r)
	check.Need(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	check.Need(t, err)
	retry := "none"
	if res.Header.Get("Retry-After") != "" {
		retry = "a time"
	}
	return answer{
		status: res.StatusCode, limit: res.Header.Get("X-RateLimit-Limit"), remaining: res.Header.Get("X-RateLimit-Remaining"),
		retry: retry, mediaType: strings.ToLower(res.Header.Get("Content-Type")), challenge: res.Header.Get("WWW-Authenticate"),
		body: strings.TrimRight(numbers.ReplaceAllString(string(body), "${1}(a time)"), "\n"),
	}
}

// TestAnswers sends the same requests to each web app. All apps must answer as the limits say, and in the same way.
func TestAnswers(t *testing.T) {
	const denied, unauthorized = http.StatusTooManyRequests, http.StatusUnauthorized
	const problem = "application/problem+json"
	steps := []struct {
		path, user, key  string
		status           int
		limit, remaining string
	}{
		{"/", "", "", 200, "10", "9"},
		{"/healthz", "", "", 200, "", ""},
		{"/user", "", "", unauthorized, "", ""},
		{"/user", "alice", "", 200, "5", "4"},
		{"/user", "alice", "", 200, "5", "3"},
		{"/user", "alice", "", 200, "5", "2"},
		{"/user", "alice", "", 200, "5", "1"},
		{"/user", "alice", "", 200, "5", "0"},
		{"/user", "alice", "", denied, "5", "0"},
		{"/user", "bob", "", 200, "5", "4"},
		{"/key", "", "demo-key-1", 200, "5", "4"},
		{"/key", "", "demo-key-2", 200, "5", "4"},
		{"/key", "", "invented", 200, "5", "4"}, // counted by address
	}
	var first []answer
	for _, name := range webApps {
		p := start(t, name)
		for i, step := range steps {
			got := p.get(t, step.path, step.user, step.key)
			if got.status != step.status || got.limit != step.limit || got.remaining != step.remaining {
				t.Errorf("%s: %+v: got status %d, limit %q, remaining %q", name, step, got.status, got.limit, got.remaining)
			}
			if isProblem := got.mediaType == problem; isProblem != (got.status != http.StatusOK) {
				t.Errorf("%s: %+v: got the Content-Type %q, want %s only for errors", name, step, got.mediaType, problem)
			}
			if (got.retry == "a time") != (got.status == denied) {
				t.Errorf("%s: %+v: got a Retry-After of %s, want a time only for denials", name, step, got.retry)
			}
			if name == webApps[0] {
				first = append(first, got)
			} else if got != first[i] {
				t.Errorf("%s: %+v: got %+v, want the answer of %s, %+v", name, step, got, webApps[0], first[i])
			}
		}
		p.drain(t)
		p.stop(t)
	}
}

// drain requests "/" until a request is denied. One of the 10 requests that are allowed in 10 seconds has been made before.
func (p *program) drain(t *testing.T) {
	t.Helper()
	began, admitted := time.Now(), 0
	for admitted < 100 && p.get(t, "/", "", "").status == http.StatusOK {
		admitted++
	}
	most := 10 + int(time.Since(began)/time.Second) + 1
	if admitted < 9 || admitted > most {
		t.Errorf("%s: after the first request, %d were admitted, want 9 to %d", p.name, admitted, most)
	}
}
