package browser

import (
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
)

// TestCopy copies the code of a limit, with access to the clipboard and without. It is not parallel,
// because the clipboard requires the focus, which only one tab has.
func TestCopy(t *testing.T) {
	server := start(t)
	p := live(t, server, "?shape=hand&rate=7&burst=3", desktop, height)
	clipboard := func(setting browser.PermissionSetting) {
		for _, name := range []string{"clipboard-write", "clipboard-read"} {
			params := browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: name}, Setting: setting}
			if _, err := chromedp.Call(p.ctx, browser.SetPermission, params); err != nil {
				t.Fatal(err)
			}
		}
	}
	clipboard(browser.PermissionSettingDenied)
	p.click("[data-lane=token_bucket] .code")
	p.until("the code is selected", `document.getElementById("code-state").textContent.startsWith("Selected")
		&& getSelection().toString().includes("core.TokenBucket(core.Per(7, 5*time.Second), core.Burst(3)),")`)

	clipboard(browser.PermissionSettingGranted)
	p.click("#code-copy")
	p.until("the code is copied", `document.getElementById("code-state").textContent.startsWith("Copied")`)
	want := eval[string](p, `document.getElementById("code-text").textContent`)
	if got := await[string](p, "navigator.clipboard.readText()"); got != want {
		t.Errorf("the clipboard contains\n%s\nwant\n%s", got, want)
	}
	p.click("#code-close")
	p.until("closed", `!document.getElementById("code").open`)

	// The code must follow the controls.
	p.do(chromedp.SetValue(chromedp.CSS("#rate"), "9"))
	eval[bool](p, `document.getElementById("rate").dispatchEvent(new Event("input", { bubbles: true }))`)
	p.until("the changed limit in the code", `(() => {
		document.querySelector("[data-lane=gcra] .code").click()
		const text = document.getElementById("code-text").textContent
		document.getElementById("code").close()
		return text.includes("core.GCRA(core.Per(9, 5*time.Second), core.Burst(3)),")
	})()`)
}
