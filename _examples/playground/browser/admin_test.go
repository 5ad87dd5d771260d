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
	t.Setenv("ADMIN_PASSWORD", password) // so none of these is parallel, and each has the focus
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

// TestAdminViews looks at the page while clients are denied, at the sizes and in the colours of the playground.
func TestAdminViews(t *testing.T) {
	_, p := startAdmin(t, desktop, height)
	p.until("the client that asks most, as the one that is denied most", deniedKeys+`[0]?.textContent === "ip:192.0.2.1"`)
	p.until("who decides", `document.querySelector("[data-limiter=api] .sources").textContent.startsWith("Redis ")`)
	p.until("latency", `/median, [\d.]+ .s p99/.test(document.querySelector("[data-limiter=api] .numbers").textContent)`)
	p.until("how Redis is", `document.querySelector("[data-limiter=api] .server.up").textContent.endsWith(" answers")`)
	p.until("a chart with denials", `/, [1-9]\d* of them denied/.test(document.querySelector("[data-limiter=api] svg").ariaLabel)`)
	p.until("10 s of it", `document.querySelector("[data-limiter=api] .served-line").getAttribute("d").split("L").length > 12`)
	p.click("[data-limiter=api] .denied.keys button")
	p.until("the key", `document.getElementById("found-key").textContent === "ip:192.0.2.1"`)
	p.until("each of its limits", `document.querySelectorAll("#found .limit").length === 2`)
	p.named("button", "combobox", "textbox", "image", "meter", "region", "complementary", "main", "group", "dialog")
	p.until("a joined key, whole", `(() => {
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

// TestAdminKeyboard looks a key up by its parts, blocks, unblocks and resets it, without a mouse.
func TestAdminKeyboard(t *testing.T) {
	_, p := startAdmin(t, phoneWidth, phoneHeight, "-traffic=false")
	press := func(keys ...string) {
		for _, key := range keys {
			p.do(chromedp.KeyEvent(key))
		}
	}
	p.do(chromedp.Focus(chromedp.CSS("#limiter")))
	press("l", kb.Tab) // login; to the kind of the first part
	press("I", kb.Tab)
	press(strings.Split("192.0.2.7", "")...)
	press(kb.Tab, kb.Enter) // one more part, which has the focus
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
	press(kb.Enter) // the focus is back on Block
	p.until("the question again", `document.getElementById("confirm").open`)
	press(kb.Tab, kb.Enter) // from Cancel, which comes first, to Block
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
	p.allowMessages() // Chromium's own about the status
	p.until("what is wrong", message+`.includes("no address")`)
}

// TestAdminHostileKeys has clients choose keys that would be harmful as HTML, hide what they are, or are long.
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
	p.until("all of them", fmt.Sprintf(rows+`.length === %d`, len(keys)))
	all := eval[[]string](p, rows+`.map((e) => e.firstChild.textContent)`)
	for _, want := range []string{
		"header:X-Client:" + keys[0], "header:X-Client:" + keys[1], "header:X-Client:" + keys[2], `header:X-Client:alice\u{202e}gnp.exe\u{2066}`,
	} {
		if !strings.Contains(strings.Join(all, "\n"), want) {
			t.Errorf("%q is not among %q", want, all)
		}
	}
	p.keep("admin-hostile.png")
	for i, key := range keys {
		const invisible = `document.getElementById("found-key").textContent`
		at := fmt.Sprintf(`%s.findIndex((e) => e.textContent.includes(%q))`, rows, strings.TrimSpace(key[:min(len(key), 20)]))
		if i == 3 || i == 4 || i == 6 {
			continue // not as it is sent; the last one is cut, and no button
		}
		eval[bool](p, fmt.Sprintf(`(%s[%s].querySelector("button").click(), true)`, rows, at))
		p.until("the key that was chosen: "+key, fmt.Sprintf(invisible+` === %q`, "header:X-Client:"+key))
		p.until("its denial", verdict+`.startsWith("Denied for ")`)
	}
	eval[bool](p, `(`+rows+`.find((e) => e.textContent.includes("bytes")).querySelector("button").click(), true)`)
	p.until("the key whose bytes are no text", `document.getElementById("found-key").textContent.endsWith(" bytes") && `+verdict+`.startsWith("Denied for ")`)
	p.click("#reset")
	p.until("the question", `document.getElementById("confirm").open`)
	p.click("#confirm-yes")
	p.until("that very key is free", message+` === "Reset." && `+verdict+` === "The next request is admitted"`)
	if eval[bool](p, `"harmed" in window || document.querySelector("main img, main script, aside img, aside script, dialog img") !== null`) {
		t.Error("a key became HTML")
	}
	for _, width := range []int64{1280, 390, 320} {
		p.do(chromedp.EmulateViewport(width, phoneHeight))
		p.redrawn()
		p.fits(fmt.Sprint(width))
	}
}

// TestAdminOtherOrigins opens a page of another origin in the browser of an administrator: it can do nothing to a key, read
// nothing, and show the page in no frame.
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
	p.allowMessages() // Chromium's own about what was refused
	p.do(chromedp.Navigate("http://localhost:" + at.Port() + "/"))
	p.until("all is tried", `document.title !== "" && document.title !== location.host + location.pathname`)
	if got := eval[string](p, "document.title"); strings.Contains(got, "read") || !strings.HasSuffix(got, "refused,refused,refused") {
		t.Errorf("another origin got %s", got)
	}
	if framed := eval[bool](p, `(() => { try { return document.getElementById("frame").contentWindow.length > 0 } catch { return false } })()`); framed {
		t.Error("the page is in a frame")
	}
	p.do(chromedp.Navigate(a.url + "/limits/"))
	p.until("live", isLive)
	p.do(chromedp.SetValue(chromedp.CSS("#limiter"), "login"), chromedp.SetValue(chromedp.CSS(".part .value input"), "user:alice"), chromedp.Click(chromedp.CSS("#go")))
	p.until("the key", `document.getElementById("found-key").textContent === "user:alice"`)
	if got := eval[string](p, verdict); got != "The next request is admitted" {
		t.Errorf("after what another origin did: %s", got)
	}
}

// TestAdminLost stops the server while the page is open.
func TestAdminLost(t *testing.T) {
	a, p := startAdmin(t, desktop, height, "-traffic=false")
	p.allowMessages() // the page asks again while the server stops
	a.stop(t)
	p.until("lost", `document.body.dataset.state === "lost" && document.getElementById("state").textContent === "Not connected"`)
	p.keep("admin-lost.png")
}
