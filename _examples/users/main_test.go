package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redislimit/redislimit/core"
)

// TestUsers sends more requests than allowed for three users of one organization, and for a user of another organization.
func TestUsers(t *testing.T) {
	t.Parallel()
	perUser := core.MustNewMemory("user", core.FixedWindow(core.PerDay(5)))
	perOrg := core.MustNewMemory("org", core.FixedWindow(core.PerDay(12)))
	app := routes(perUser, perOrg)
	for _, step := range []struct {
		user   string
		served int
		by     string // the limit in the headers of the last answer
	}{
		{"alice@acme", 5, "5"},
		{"bob@acme", 5, "5"},
		{"carol@acme", 2, "12"},
		{"alice@initech", 5, "5"},
		{"carol", 0, ""},
	} {
		served, by := 0, ""
		for range 20 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			r.Header.Set("User", step.user)
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r)
			if by = w.Header().Get("X-RateLimit-Limit"); w.Code == http.StatusOK {
				served++
			}
		}
		if served != step.served || by != step.by {
			t.Errorf("%s: %d requests were served, and the limit is %q; want %d and %q", step.user, served, by, step.served, step.by)
		}
	}
}
