package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
)

// TestTokens sends questions until there is a debt, and again when the debt is paid.
func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := core.MustNewMemory("tokens", core.TokenBucket(core.PerMinute(perMinute)))
		defer func() { _ = lim.Close() }()
		app := routes(lim)
		for _, step := range []struct {
			after             time.Duration
			key, words        string
			status            int
			remaining, reason string
		}{
			{0, "invented", "why", 401, "", "it is not a key"},
			{0, "demo-key-1", "", 400, "800", "it is free"},
			{0, "demo-key-1", "why is the sky blue", 200, "800", "the estimate is held"},
			{0, "demo-key-1", strings.Repeat("word ", 150), 200, "745", "five words and fifty were charged"},
			{0, "demo-key-1", "why", 429, "0", "1650 more were charged"},
			{0, "demo-key-2", "why", 200, "800", "it is another key"},
			{54299 * time.Millisecond, "demo-key-1", "why", 429, "199", "of 1705 tokens 905 have drained but for a millisecond"},
			{time.Millisecond, "demo-key-1", "why", 200, "0", "the debt is paid, and the estimate fits"},
		} {
			time.Sleep(step.after)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/answer", strings.NewReader(step.words))
			r.Header.Set("X-API-Key", step.key)
			w := httptest.NewRecorder()
			app.ServeHTTP(w, r)
			if got := w.Header().Get("X-RateLimit-Remaining"); w.Code != step.status || got != step.remaining {
				t.Errorf("%.20q with %s: got status %d and %q remaining, want %d and %q, because %s",
					step.words, step.key, w.Code, got, step.status, step.remaining, step.reason)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/usage", http.NoBody)
		r.Header.Set("X-API-Key", "demo-key-2")
		w := httptest.NewRecorder()
		app.ServeHTTP(w, r)
		if want := "1000 of 1000 tokens left; all of them in 0s\n"; w.Body.String() != want {
			t.Errorf("usage: got %q, want %q", w.Body, want)
		}
	})
}
