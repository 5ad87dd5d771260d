package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestSend sends requests by hand, without other traffic.
func TestSend(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := open(t, server.url+"/?shape=hand&rate=5&burst=3", desktop, height)
	p.until("live", `document.getElementById("state").textContent === "Live"`)
	p.until("the configuration of the address", `document.getElementById("summary").textContent.includes("The limit is 5 per 5 s")`)
	p.do(chromedp.Click(chromedp.CSS("#send-one")))
	p.until("a response", `document.getElementById("hand-answer").textContent.startsWith("200 OK")`)
	for _, header := range []string{"X-Ratelimit-Limit: 5", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: "} {
		if got := eval[string](p, `document.getElementById("hand-answer").textContent`); !strings.Contains(got, header) {
			t.Errorf("no %q in the response:\n%s", header, got)
		}
	}
	p.do(chromedp.SetValue(chromedp.CSS("#lane-choice"), "leaky_bucket"), chromedp.Click(chromedp.CSS("#send-ten")))
	p.until("a denial by the full queue", `document.getElementById("hand-count").textContent.match(/[1-9]\d* denied/) !== null`)
	p.until("all answered", `document.getElementById("hand-count").textContent.match(/^Leaky bucket: \d+ of your 11 served, \d+ denied\.$/) !== null`)
	if held := p.lane("leaky_bucket", "held"); held == 0 {
		t.Error("the leaky bucket held nothing")
	}
	p.do(chromedp.SetValue(chromedp.CSS("#lane-choice"), "fixed_window"))
	eval[bool](p, `document.getElementById("lane-choice").dispatchEvent(new Event("change"))`)
	p.until("the count of another lane, which got the same requests", `document.getElementById("hand-count").textContent.startsWith("Fixed window: 5 of your 11 served, 6 denied")
		|| document.getElementById("hand-count").textContent.match(/^Fixed window: (6|7|8|9|10) of your 11 served/) !== null`)
	p.keep("playground-hand.png")
	server.stop(t)
	p.allowMessages()
}
