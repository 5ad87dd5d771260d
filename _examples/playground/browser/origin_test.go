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

// evil is a page that takes all streams it can get, in each way, and tries to read and to drive the playground.
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

// TestOtherOrigins has pages of another port, and of another site, ask for 48 streams each: they get none, read nothing,
// and the user's own page is not locked out.
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
		p.allowMessages() // of what was refused
		p.do(chromedp.Navigate(origin))
		for _, got := range await[[]string](p, "window.done") {
			if got != "refused" {
				t.Errorf("%s reads %q", origin, got)
			}
		}
		if n := eval[int](p, "window.opened"); n > 0 {
			t.Errorf("%s has %d streams", origin, n)
		}
	}
	p := live(t, server, "?shape=hand", desktop, height)
	p.click("#send-one")
	p.until("an answer", `document.getElementById("hand-answer").textContent.startsWith("200 OK")`)
}

// TestOtherNames asks the playground under a name that another site could have made to resolve to it.
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
			t.Errorf("%s: status %d, %s", path, response.StatusCode, text)
		}
	}
}
