package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestHammer sends requests by hand, without other traffic.
func TestHammer(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := open(t, server.url+"/?shape=hand&rate=5&burst=3", desktop, height)
	p.until("live", `document.getElementById("state").textContent === "Live"`)
	p.until("the configuration of the address", `document.getElementById("summary").textContent.startsWith("No traffic but yours")`)
	p.do(chromedp.Click(chromedp.CSS("#hammer")))
	p.until("an answer", `document.getElementById("hand-answer").textContent.startsWith("200 OK")`)
	for _, header := range []string{"x-ratelimit-limit: 5", "x-ratelimit-remaining: 4", "x-ratelimit-reset: "} {
		if got := eval[string](p, `document.getElementById("hand-answer").textContent`); !strings.Contains(got, header) {
			t.Errorf("no %q in the answer:\n%s", header, got)
		}
	}
	p.do(chromedp.SetValue(chromedp.CSS("#algorithm"), "leaky_bucket"), chromedp.Click(chromedp.CSS("#hammer-ten")))
	p.until("a denial by the full queue", `document.getElementById("hand-count").textContent.match(/[1-9]\d* denied/) !== null`)
	p.until("all answered", `document.getElementById("hand-count").textContent.match(/^You sent 11, \d+ served, \d+ denied\.$/) !== null`)
	if held := p.lane("leaky_bucket", "held"); held == 0 {
		t.Error("the leaky bucket held nothing")
	}
	p.keep("playground-hammer.png")
	server.stop(t)
	p.allowMessages()
}
