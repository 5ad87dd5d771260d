package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestSend sends requests by hand, without other traffic, and checks the answers and the counts.
func TestSend(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := live(t, server, "?shape=hand&rate=5&burst=3", desktop, height)
	p.until("the configuration of the address", `document.getElementById("summary").textContent.includes("The limit is 5 per 5 s")`)
	p.click("#send-one")
	p.until("a response", `document.getElementById("hand-answer").textContent.startsWith("200 OK")`)
	for _, header := range []string{"X-Ratelimit-Limit: 5", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: "} {
		if got := eval[string](p, `document.getElementById("hand-answer").textContent`); !strings.Contains(got, header) {
			t.Errorf("the response does not contain %q:\n%s", header, got)
		}
	}
	p.do(chromedp.SetValue(chromedp.CSS("#lane-choice"), "leaky_bucket"), chromedp.Click(chromedp.CSS("#send-ten")))
	p.until("a denial by the full queue", `document.getElementById("hand-count").textContent.match(/[1-9]\d* denied/) !== null`)
	p.until("all answered", `document.getElementById("hand-count").textContent.match(/^Leaky bucket: \d+ of your 11 served, \d+ denied\.$/) !== null`)
	if held := p.lane("leaky_bucket", "held"); held == 0 {
		t.Error("the leaky bucket held no request, want some")
	}
	p.do(chromedp.SetValue(chromedp.CSS("#lane-choice"), "fixed_window"))
	eval[bool](p, `document.getElementById("lane-choice").dispatchEvent(new Event("change"))`)
	p.until("the count of another lane, which got the same requests", `document.getElementById("hand-count").textContent.startsWith("Fixed window: 5 of your 11 served, 6 denied")
		|| document.getElementById("hand-count").textContent.match(/^Fixed window: (6|7|8|9|10) of your 11 served/) !== null`)
	p.keep("playground-hand.png")
}

// TestBan switches bans on, and sends requests until the client is banned: the page must say so while the ban lasts.
func TestBan(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := live(t, server, "?shape=hand&rate=2&burst=2", desktop, height)
	p.click("#ban")
	p.until("bans, in the address and from the server", `location.search.includes("ban=true") &&
		document.getElementById("summary").textContent.startsWith("Who goes beyond 2 per 5 s is banned for 6 s")`)
	p.click("#send-ten")
	const because = `document.querySelector("[data-lane=gcra] .because")`
	p.until("a ban, in the colour of denials", because+`.textContent.match(/^banned for [1-6] s$/) !== null &&
		getComputedStyle(`+because+`).color === getComputedStyle(document.getElementById("stop")).color`)
	p.until("a denial as long as the ban", `document.getElementById("hand-answer").textContent.match(/^Retry-After: [56]$/m) !== null`)
	p.looksWell("banned")
	p.wantCode("[data-lane=gcra] .code", "\n\t\tcore.Ban(6*time.Second, 12*time.Second),\n")
	p.until("the end of the ban", "!"+because+`.textContent.startsWith("banned")`)
}
