package browser

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const password = "opensesame"

// startAdmin starts the admin example, and opens its page as an administrator.
func startAdmin(t *testing.T, width, height int64, flags ...string) (*app, *tab) {
	t.Helper()
	t.Setenv("ADMIN_PASSWORD", password) // so no such test is parallel, and its tab has the focus
	a := startApp(t, shared.admin, flags...)
	p := open(t, "", width, height)
	headers := network.Headers{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+password))}
	if _, err := chromedp.Call(p.ctx, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: headers}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Navigate(a.url + "/limits/"))
	p.until("live", isLive)
	p.until("both limiters", `document.querySelectorAll(".card").length === 2`)
	return a, p
}

const (
	deniedKeys = `[...document.querySelectorAll("[data-limiter=api] .denied.keys button")]`
	verdict    = `document.getElementById("verdict").textContent`
	message    = `document.getElementById("message").textContent`
)

// TestAdminViews shows the page while clients are denied, at the sizes and in the colors in which the playground is tested.
func TestAdminViews(t *testing.T) {
	_, p := startAdmin(t, desktop, height)
	p.until("the client with most requests as the one with most denials", deniedKeys+`[0]?.textContent === "ip:192.0.2.1"`)
	p.until("where decisions are made", `document.querySelector("[data-limiter=api] .sources").textContent.startsWith("Redis ")`)
	p.until("latency", `/median, [\d.]+ .s p99/.test(document.querySelector("[data-limiter=api] .numbers").textContent)`)
	p.until("the state of Redis", `document.querySelector("[data-limiter=api] .server.up").textContent.endsWith(" answers")`)
	p.until("a chart with denials", `/, [1-9]\d* of them denied/.test(document.querySelector("[data-limiter=api] svg").ariaLabel)`)
	p.until("10 s of it", `document.querySelector("[data-limiter=api] .served-line").getAttribute("d").split("L").length > 12`)
	p.click("[data-limiter=api] .denied.keys button")
	p.until("the key", `document.getElementById("found-key").textContent === "ip:192.0.2.1"`)
	p.until("each of its limits", `document.querySelectorAll("#found .limit").length === 2`)
	p.named("button", "combobox", "textbox", "image", "meter", "region", "complementary", "main", "group", "dialog")
	p.until("the whole text of a joined key", `(() => {
		const key = document.querySelector("[data-limiter=login] .asked.keys .key")
		return key?.title.startsWith("join:ip:198.51.100.7,") && key.title === key.textContent && key.firstChild.scrollHeight <= key.firstChild.clientHeight + 1
	})()`)
	for _, v := range views {
		p.prefer("prefers-color-scheme", v.scheme)
		p.do(chromedp.EmulateViewport(v.width, v.height))
		p.redrawn()
		p.keep("admin-" + v.name + ".png")
	}
	p.do(chromedp.EmulateViewport(phoneWidth, 3*phoneHeight))
	p.redrawn()
	p.keep("admin-phone-all.png")
	for _, width := range []int64{1600, 1024, 900, 700, 390, 320} {
		p.do(chromedp.EmulateViewport(width, phoneHeight))
		p.redrawn()
		p.fits(fmt.Sprint(width))
		p.fingers(fmt.Sprint(width), "body > :not(dialog) :is(button, select, input)")
	}
}

// TestAdminKeyboard looks up a key by its parts, and blocks, unblocks and resets it, with the keyboard only.
func TestAdminKeyboard(t *testing.T) {
	_, p := startAdmin(t, phoneWidth, phoneHeight, "-traffic=false")
	press := func(keys ...string) {
		for _, key := range keys {
			p.do(chromedp.KeyEvent(key))
		}
	}
	p.do(chromedp.Focus(chromedp.CSS("#limiter")))
	press("l", kb.Tab) // chooses login, and leads to the kind of the first part
	press("I", kb.Tab)
	press(strings.Split("192.0.2.7", "")...)
	press(kb.Tab, kb.Enter) // adds a part, which gets the focus
	press("B", "a", "s", kb.Tab)
	press(strings.Split("alice", "")...)
	press(kb.Enter)
	p.until("the joined key", `document.getElementById("found-key").textContent === "join:ip:192.0.2.7,basic:alice"`)
	p.until("the key has the focus", `document.activeElement.id === "found"`)
	p.until("nothing used", verdict+` === "The next request is admitted"`)

	press(kb.Tab, kb.Tab, kb.Enter) // Block
	p.until("a question", `document.getElementById("confirm").open && document.getElementById("confirm-title").textContent === "Block this key?"`)
	p.keep("admin-confirm.png")
	press(kb.Escape)
	p.until("no question", `!document.getElementById("confirm").open`)
	press(kb.Enter) // the focus is on Block again
	p.until("the question again", `document.getElementById("confirm").open`)
	press(kb.Tab, kb.Enter) // from Cancel, which has the focus, to Block
	p.until("blocked", message+` === "Blocked." && `+verdict+`.startsWith("Banned for 10 min, until ")`)
	p.keep("admin-blocked.png")
	press(kb.Tab, kb.Tab, kb.Tab, kb.Enter) // Unblock
	p.until("the question", `document.getElementById("confirm").open`)
	press(kb.Tab, kb.Enter)
	p.until("unblocked", message+` === "Unblocked." && `+verdict+` === "The next request is admitted"`)
	press(kb.Tab, kb.Enter) // Reset
	p.until("the question", `document.getElementById("confirm").open`)
	press(kb.Tab, kb.Enter)
	p.until("reset", message+` === "Reset."`)

	p.do(chromedp.SetValue(chromedp.CSS(".part .value input"), "no address"), chromedp.Click(chromedp.CSS("#go")))
	p.allowMessages() // Chromium's own message about the status
	p.until("a message that names the mistake", message+`.includes("no address")`)
}

// TestAdminHostileKeys uses keys that clients have chosen, and that would be harmful as HTML, look like other texts, or are long.
func TestAdminHostileKeys(t *testing.T) {
	a, p := startAdmin(t, phoneWidth, phoneHeight, "-traffic=false", "-limit", "fixed_window 1/1h")
	keys := []string{
		`<img src=x onerror="window.harmed=1">`, `"><script>window.harmed=1</script>`, `{{constructor.constructor('window.harmed=1')()}}`,
		"alice\u202egnp.exe\u2066", "\xff\xfe bytes", strings.Repeat("long ", 80) + ".", strings.Repeat("W", 600), "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307",
	}
	for _, key := range keys {
		for range 2 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/hello", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Client", key)
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
		}
	}
	rows := `[...document.querySelectorAll("[data-limiter=api] .denied.keys li")]`
	p.until("all of the keys", fmt.Sprintf(rows+`.length === %d`, len(keys)))
	all := eval[[]string](p, rows+`.map((e) => e.firstChild.textContent)`)
	for _, want := range []string{
		"header:X-Client:" + keys[0], "header:X-Client:" + keys[1], "header:X-Client:" + keys[2], `header:X-Client:alice\u{202e}gnp.exe\u{2066}`,
	} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("the key %q is not shown, among %q", want, all)
		}
	}
	p.keep("admin-hostile.png")
	for i, key := range keys {
		const invisible = `document.getElementById("found-key").textContent`
		at := fmt.Sprintf(`%s.findIndex((e) => e.textContent.includes(%q))`, rows, strings.TrimSpace(key[:min(len(key), 20)]))
		if i == 3 || i == 4 || i == 6 {
			continue // the page does not show these as they are sent; the last of them is cut, and no button
		}
		eval[bool](p, fmt.Sprintf(`(%s[%s].querySelector("button").click(), true)`, rows, at))
		p.until("the key that was chosen: "+key, fmt.Sprintf(invisible+` === %q`, "header:X-Client:"+key))
		p.until("its denial", verdict+`.startsWith("Denied for ")`)
	}
	eval[bool](p, `(`+rows+`.find((e) => e.textContent.includes("bytes")).querySelector("button").click(), true)`)
	p.until("the key whose bytes are not text", `document.getElementById("found-key").textContent.endsWith(" bytes") && `+verdict+`.startsWith("Denied for ")`)
	p.click("#reset")
	p.until("the question", `document.getElementById("confirm").open`)
	p.click("#confirm-yes")
	p.until("this key is reset", message+` === "Reset." && `+verdict+` === "The next request is admitted"`)
	if eval[bool](p, `"harmed" in window || document.querySelector("main img, main script, aside img, aside script, dialog img") !== null`) {
		t.Error("a key was interpreted as HTML")
	}
	for _, width := range []int64{1280, 390, 320} {
		p.do(chromedp.EmulateViewport(width, phoneHeight))
		p.redrawn()
		p.fits(fmt.Sprint(width))
	}
}

// TestAdminOtherOrigins opens a page of another origin in the browser of an administrator: it must not change a key, read data, or show
// the page in a frame.
func TestAdminOtherOrigins(t *testing.T) {
	a, p := startAdmin(t, desktop, height, "-traffic=false")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<form id=f method=post enctype=text/plain target=t action="%[1]s/limits/block"><input name='{"limiter":"login","key":"user:alice","for":"1h","x":"' value='"}'></form>
			<iframe name=t></iframe><iframe id=frame src="%[1]s/limits/"></iframe>
			<script>
			const body = '{"limiter":"login","key":"user:alice","for":"1h"}'
			const go = (init) => fetch("%[1]s/limits/block", { method: "POST", credentials: "include", body, ...init }).then((r) => r.type, () => "refused")
			f.submit()
			Promise.all([go({ mode: "no-cors" }), go({}), go({ headers: { "Content-Type": "application/json" } }),
				fetch("%[1]s/limits/data.json", { credentials: "include" }).then(() => "read", () => "refused")]).then((all) => setTimeout(() => { document.title = all.join() }, 1000))
			</script>`, a.url)
	}))
	defer evil.Close()
	at, err := url.Parse(evil.URL)
	if err != nil {
		t.Fatal(err)
	}
	p.allowMessages() // Chromium's own messages about refused requests
	p.do(chromedp.Navigate("http://localhost:" + at.Port() + "/"))
	p.until("all requests have ended", `document.title !== "" && document.title !== location.host + location.pathname`)
	if got := eval[string](p, "document.title"); strings.Contains(got, "read") || !strings.HasSuffix(got, "refused,refused,refused") {
		t.Errorf("the requests of another origin ended with %s, want the last three refused, and nothing read", got)
	}
	if framed := eval[bool](p, `(() => { try { return document.getElementById("frame").contentWindow.length > 0 } catch { return false } })()`); framed {
		t.Error("another origin can show the page in a frame")
	}
	p.do(chromedp.Navigate(a.url + "/limits/"))
	p.until("live", isLive)
	p.do(chromedp.SetValue(chromedp.CSS("#limiter"), "login"), chromedp.SetValue(chromedp.CSS(".part .value input"), "user:alice"), chromedp.Click(chromedp.CSS("#go")))
	p.until("the key", `document.getElementById("found-key").textContent === "user:alice"`)
	if got := eval[string](p, verdict); got != "The next request is admitted" {
		t.Errorf("after the requests of another origin: got %s, want the key unchanged", got)
	}
}

// TestAdminLost stops the server while the page is open: the page must say that it is not connected.
func TestAdminLost(t *testing.T) {
	a, p := startAdmin(t, desktop, height, "-traffic=false")
	p.allowMessages() // the page sends requests while the server stops
	a.stop(t)
	p.until("lost", `document.body.dataset.state === "lost" && document.getElementById("state").textContent === "Not connected"`)
	p.keep("admin-lost.png")
}
