package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// views are the sizes and color schemes in which the page is tested.
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

// TestViews writes a picture of each state of the page to .ci/out, and checks that the page fits into the window and that no words
// touch others in the charts.
func TestViews(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := live(t, server, "", desktop, height)
	p.until("traffic", laneOf("fixed_window", "peak")+" > 10")
	p.until("a key that is leased", "Number(document.querySelector('[data-lane=lease]').dataset.share) > 0.9")
	p.look("live")
	p.click("#send-ten")
	p.click("#stop")
	p.until("an outage", `document.body.dataset.redis === "stopped"`)
	p.until("traffic without Redis", `document.querySelector("[data-lane=fail_open] .count").textContent.match(/^(19|20|21) of \1 served$/) !== null`)
	p.look("stopped")
	p.until("decisions by leases, or by the outage policy", `document.querySelector("[data-lane=lease] .count").textContent.includes("outage policy")`)
	p.click("#pause")
	p.until("paused", `document.body.dataset.state === "paused"`)
	p.look("paused")
	p.click("[data-lane=fail_open] .code")
	p.look("code")
	p.click("#code-close")
	p.wantCode("[data-lane=fail_open] .code", "\n\t\tcore.TokenBucket(core.Per(10, 5*time.Second), core.Burst(2)),\n", "\n\t\tcore.FailOpen(),\n")
	p.allowMessages()
	server.stop(t)
	p.until("lost", `document.body.dataset.state === "lost"`)
	p.look("lost")
}

// look takes pictures of the page in each view, and checks each of them.
func (p *tab) look(state string) {
	p.t.Helper()
	for _, v := range views {
		p.prefer("prefers-color-scheme", v.scheme)
		p.do(chromedp.EmulateViewport(v.width, v.height))
		p.fits(v.name)
		p.redrawn()
		p.keep(fmt.Sprintf("playground-%s-%s.png", state, v.name))
		p.wordsApart(v.name)
	}
	for name, size := range map[string][2]int64{"desktop": {desktop, 3 * height / 2}, "phone": {phoneWidth, 4 * phoneHeight}} { // larger than a screen, to show the whole page
		p.do(chromedp.EmulateViewport(size[0], size[1]))
		p.keep(fmt.Sprintf("playground-%s-%s-all.png", state, name))
	}
	p.do(chromedp.EmulateViewport(desktop, height))
}

// fits checks that the page is not wider than the window.
func (p *tab) fits(view string) {
	p.t.Helper()
	if over := eval[int](p, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		p.t.Errorf("%s: the page is %d px too wide", view, over)
	}
}

// fingers checks that all elements that a selector finds are large enough for a finger.
func (p *tab) fingers(view, selector string) {
	p.t.Helper()
	if small := eval[[]string](p, fmt.Sprintf(`[...document.querySelectorAll(%q)].filter((e) => e.getClientRects().length)
		.filter((e) => e.getBoundingClientRect().height < 24 || e.getBoundingClientRect().width < 24).map((e) => e.id || e.textContent)`, selector)); len(small) > 0 {
		p.t.Errorf("%s: the elements %v are too small for a finger, want 24 px or more", view, small)
	}
}

// wantCode opens the code of a limit, checks that the code contains the lines, and closes it.
func (p *tab) wantCode(button string, lines ...string) {
	p.t.Helper()
	p.click(button)
	code := eval[string](p, `document.getElementById("code-text").textContent`)
	for _, line := range lines {
		if !strings.Contains(code, line) {
			p.t.Errorf("the code does not contain %q:\n%s", line, code)
		}
	}
	p.click("#code-close")
}

// looksWell checks that no words touch, and takes a picture of the page.
func (p *tab) looksWell(name string) {
	p.t.Helper()
	p.redrawn()
	p.wordsApart(name)
	p.keep("playground-" + name + ".png")
}

// redrawn waits until the charts have been drawn again.
func (p *tab) redrawn() {
	p.t.Helper()
	await[bool](p, "new Promise((done) => setTimeout(() => requestAnimationFrame(() => done(true)), 100))")
}

// wordsApart checks that no words in a chart touch others or are outside of the chart,
// and that the words at the top of the page do not touch.
func (p *tab) wordsApart(view string) {
	p.t.Helper()
	touching := await[[]string](p, `import("./app.js").then(({ lanes }) => lanes.flatMap(({ id, words, canvas }) =>
		words.flatMap(([l, t, r, b], i) => words.slice(i + 1).some(([l2, t2, r2, b2]) => l < r2 && l2 < r && t < b2 && t2 < b) ||
			l < 0 || r > canvas.clientWidth || t < 0 || b > canvas.clientHeight ? [id + ": " + [l, t, r, b]] : [])))`)
	touching = append(touching, eval[[]string](p, `["h1", "#tagline", "nav", "#redis", "#state"].map((name) => [name, document.querySelector(name)])
		.filter(([, e]) => getComputedStyle(e).opacity > 0 && e.getClientRects().length > 0)
		.map(([name, e]) => [name, e.getBoundingClientRect()])
		.flatMap(([name, a], i, all) => all.slice(i + 1).filter(([other, b]) =>
			a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).map(([other]) => name + " and " + other))`)...)
	if len(touching) > 0 {
		p.t.Errorf("%s: the words %v touch others", view, touching)
	}
}

// TestStopIsSeen presses Stop at the top of the page: the charts of the outage must come into view, completely, and stay there.
func TestStopIsSeen(t *testing.T) {
	t.Parallel()
	server := start(t)
	for name, size := range map[string][2]int64{"desktop": {desktop, height}, "laptop": {1366, 650}, "phone": {phoneWidth, phoneHeight}} {
		p := live(t, server, "", size[0], size[1])
		p.until("at the top", "scrollY === 0 && document.documentElement.scrollHeight > innerHeight")
		p.click("#stop")
		p.until("the charts of the outage", inView)
		p.until("traffic without Redis", `document.querySelector("[data-lane=fail_open] .count").textContent.match(/^(\d\d) of \1 served$/) !== null`)
		if !eval[bool](p, inView) {
			t.Errorf("%s: a chart of the outage has left the view", name)
		}
		p.keep(fmt.Sprintf("playground-stop-%s.png", name))
	}
}

// inView is an expression that is true if every chart of the outage policies, with its words, is in view.
const inView = `(() => {
	const bottom = innerWidth < 900 ? document.querySelector(".buttons").getBoundingClientRect().top : innerHeight
	const top = document.querySelector("header").getBoundingClientRect().bottom
	return [...document.querySelectorAll("#policies .lane")].map((e) => e.getBoundingClientRect()).every((r) => r.top >= top && r.bottom <= bottom)
})()`

// TestResponses makes the page show a long response and a short one: both must be shown completely.
func TestResponses(t *testing.T) {
	t.Parallel()
	server := start(t)
	for _, width := range []int64{desktop, phoneWidth} {
		p := live(t, server, "?shape=hand&rate=2", width, height)
		p.click("#send-ten")
		p.until("a denial", `document.getElementById("hand-answer").textContent.trim().endsWith("}")`)
		if cut := eval[[]string](p, `[...document.querySelectorAll(".answers pre")]
			.filter((e) => e.scrollHeight > e.clientHeight || e.scrollWidth > e.clientWidth).map((e) => e.id)`); len(cut) > 0 {
			t.Errorf("%d px wide: the responses %v are cut", width, cut)
		}
	}
}
