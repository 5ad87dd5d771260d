package browser

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// views are the sizes and colours in which the page is looked at.
var views = []struct {
	name          string
	width, height int64
	scheme        string
}{
	{"desktop-light", desktop, height, "light"},
	{"desktop-dark", desktop, height, "dark"},
	{"phone-light", phoneWidth, phoneHeight, "light"},
	{"phone-dark", phoneWidth, phoneHeight, "dark"},
}

// TestViews leaves a picture of each state of the page in .ci/out, and checks that it fits
// and that its states cannot be mistaken for each other.
func TestViews(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := open(t, server.url+"/", desktop, height)
	p.until("live", `document.getElementById("state").textContent === "Live"`)
	p.until("traffic", laneOf("fixed_window", "peak")+" > 10")
	p.look("live")
	p.do(chromedp.Click(chromedp.CSS("#send-ten")))
	p.do(chromedp.Click(chromedp.CSS("#stop")))
	p.until("an outage", `document.body.dataset.redis === "stopped"`)
	p.until("traffic without Redis", `document.querySelector("[data-lane=fail_open] .count").textContent.match(/^(19|20|21) of \1 served$/) !== null`)
	p.look("stopped")
	p.do(chromedp.Click(chromedp.CSS("#pause")))
	p.until("paused", `document.body.dataset.state === "paused"`)
	p.look("paused")
	p.do(chromedp.Click(chromedp.CSS("[data-lane=fail_open] .code")))
	p.look("code")
	p.do(chromedp.Click(chromedp.CSS("#code-close")))
	server.stop(t)
	p.allowMessages()
	p.until("lost", `document.body.dataset.state === "lost"`)
	p.look("lost")
}

// look takes a picture of the page in each view.
func (p *tab) look(state string) {
	p.t.Helper()
	for _, v := range views {
		p.prefer("prefers-color-scheme", v.scheme)
		p.do(chromedp.EmulateViewport(v.width, v.height))
		if over := eval[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
			p.t.Errorf("%s: the page is %d px too wide", v.name, over)
		}
		get(p, chromedp.Evaluate[bool]("new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 100))", chromedp.EvalAwaitPromise))
		p.keep(fmt.Sprintf("playground-%s-%s.png", state, v.name))
	}
}
