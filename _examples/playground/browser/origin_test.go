package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// evil is a page that opens as many streams as possible, in each way, and tries to read and to control the playground.
const evil = `<!doctype html><title>another site</title><script type="module">
const target = %q
window.opened = 0
for (let i = 0; i < 16; i++) {
  const events = new EventSource(target + "/events")
  events.onopen = events.onmessage = () => window.opened++
  new Image().src = target + "/events?image=" + i
  fetch(target + "/events?fetch=" + i, { mode: "no-cors" }).then(() => 0, () => 0)
}
const read = (path, init) => fetch(target + path, init).then((r) => r.text(), () => "refused")
window.done = Promise.all([read("/"), read("/events"), read("/hit", { method: "POST" }), read("/sessions/x", { method: "PUT", body: "{}" })])
</script>`

// TestOtherOrigins opens pages of another port and of another host, which request 48 streams each: they must get none, must read nothing,
// and must not lock out the user's own page.
func TestOtherOrigins(t *testing.T) {
	t.Parallel()
	server := start(t)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, evil, server.url)
	}))
	t.Cleanup(other.Close)
	for _, origin := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)} {
		p := open(t, "", desktop, height)
		p.allowMessages() // messages about refused requests
		p.do(chromedp.Navigate(origin))
		for _, got := range await[[]string](p, "window.done") {
			if got != "refused" {
				t.Errorf("%s could read %q, want it refused", origin, got)
			}
		}
		if n := eval[int](p, "window.opened"); n > 0 {
			t.Errorf("%s has opened %d streams, want none", origin, n)
		}
	}
	p := live(t, server, "?shape=hand", desktop, height)
	p.click("#send-one")
	p.until("an answer", `document.getElementById("hand-answer").textContent.startsWith("200 OK")`)
}

// TestOtherNames sends requests for a host name that another site could have made to resolve to this machine: they must be refused.
func TestOtherNames(t *testing.T) {
	t.Parallel()
	server := start(t)
	for _, path := range []string{"/", "/events", "/healthz"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.url+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example"
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got status %d, %s; want 403", path, response.StatusCode, text)
		}
	}
}
