package browser

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// focused is an expression for the id of the element that has the focus, or for its name and value.
const focused = `(() => { const e = document.activeElement; return e.id || (e.name ? e.name + "=" + e.value : e.tagName) })()`

// TestKeyboard uses the page with the keyboard only. It is not parallel, because only one tab has the focus.
func TestKeyboard(t *testing.T) {
	server := start(t)
	p := live(t, server, "?shape=hand&rate=30", desktop, height)
	p.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab)) // the links to documents
	for _, want := range []string{"shape=hand", "rate", "burst", "cost", "ban", "send-one", "send-ten", "pause", "stop", "lane-choice", "hand-answer", "traffic-answer"} {
		p.do(chromedp.KeyEvent(kb.Tab))
		if got := eval[string](p, focused); got != want {
			t.Errorf("Tab led to %s, want %s", got, want)
		}
		ring := `getComputedStyle(document.activeElement.type === "radio" ? document.activeElement.nextElementSibling : document.activeElement).outlineStyle`
		if got := eval[string](p, ring); got != "solid" {
			t.Errorf("%s: the focus ring is %s, want solid", want, got)
		}
	}

	p.do(chromedp.Focus(chromedp.CSS("[name=shape]:checked")), chromedp.KeyEvent(kb.ArrowLeft))
	p.until("the shape before", `location.search.includes("shape=clients")`)
	p.do(chromedp.KeyEvent(kb.Tab))
	if got := eval[string](p, focused); got != "traffic" { // the control was disabled while there was no traffic
		t.Errorf("with traffic, Tab led to %s, want traffic", got)
	}
	p.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.ArrowRight))
	p.until("another rate", `location.search.includes("rate=31")`)
	p.until("the new rate from the server", `document.getElementById("code-text") !== null && document.getElementById("rate-value").textContent === "31 per 5 s"`)

	p.do(chromedp.Focus(chromedp.CSS("#send-one")), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(" "))
	p.until("two answers", `document.getElementById("hand-count").textContent === "Fixed window: 2 of your 2 served, 0 denied."`)
	p.do(chromedp.Focus(chromedp.CSS("#pause")), chromedp.KeyEvent(" "))
	p.until("paused", `document.getElementById("state").textContent === "Paused" && document.getElementById("pause").textContent === "Resume"`)
	p.until("a chart that stands still", "window.before === (window.before = "+chart("gcra")+")")
}

// TestNames checks the roles and names that the browser reports to a screen reader.
func TestNames(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := live(t, server, "?shape=hand", phoneWidth, phoneHeight)
	p.until("a chart with words", `document.querySelector("canvas").ariaLabel?.startsWith("Fixed window: 0 at most in 5 s") ?? false`)
	roles := p.named("button", "radio", "slider", "checkbox", "combobox", "image", "canvas", "region", "form", "group")
	for role, want := range map[string]int{"button": 4 + 14, "radio": 5, "slider": 4, "checkbox": 1, "combobox": 1, "status": 4, "main": 1} {
		if roles[role] != want {
			t.Errorf("%d elements have the role %s, want %d; all roles: %v", roles[role], role, want, roles)
		}
	}
	p.fingers("phone", "body > :not(dialog) button, select, .shapes label")
}

// named counts the elements of each role that the browser reports to a screen reader, and checks that every element with one of roles has a
// name.
func (p *tab) named(roles ...string) (count map[string]int) {
	p.t.Helper()
	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		p.t.Fatal(err)
	}
	count = map[string]int{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := text(node.Role)
		if count[role]++; slices.Contains(roles, role) && text(node.Name) == "" {
			p.t.Errorf("an element with the role %s has no name, want one", role)
		}
	}
	return count
}

// TestReducedMotion checks that the charts are redrawn only once per second if the user prefers reduced motion.
func TestReducedMotion(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := open(t, "", desktop, height)
	p.prefer("prefers-reduced-motion", "reduce")
	p.load(server.url + "/?shape=steady")
	p.until("traffic", laneOf("gcra", "admitted")+" > 0")
	pictures := get(p, chromedp.Evaluate[int](`new Promise((done) => {
		const canvas = document.querySelector("canvas"), seen = new Set(), end = performance.now() + 2500
		const look = () => { seen.add(canvas.toDataURL()); performance.now() < end ? setTimeout(look, 50) : done(seen.size) }
		look()
	})`, chromedp.EvalAwaitPromise))
	if pictures > 4 {
		t.Errorf("a chart showed %d pictures in 2.5 s, want at most 4: one per second", pictures)
	}
}

// text returns the text of a value, or "".
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	_ = json.Unmarshal(v.Value, &s) // a value that is not a string stays ""
	return s
}
