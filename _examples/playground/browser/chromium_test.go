package browser

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const (
	requireEnv  = "REDISLIMIT_REQUIRE_CHROMIUM" // if set, the tests fail without Chromium
	picturesEnv = "REDISLIMIT_PICTURES"         // if set, the README's picture is written
	limit       = time.Minute                   // how long each wait of a test takes at most
)

// shared contains what all tests use.
var shared struct {
	playground, admin string // the paths of the programs
	browser           context.Context
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path := chromium()
	if path == "" {
		if os.Getenv(requireEnv) != "" {
			log.Printf("no chromium on this machine, and %s is set", requireEnv)
			return 1
		}
		log.Printf("no chromium on this machine: skipping all tests")
		return 0
	}
	dir, err := os.MkdirTemp("", "playground")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, binary := range map[string]*string{"playground": &shared.playground, "admin": &shared.admin} {
		if *binary, err = build(dir, name); err != nil {
			log.Print(err)
			return 1
		}
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("no-proxy-server", true), // the app runs on this machine
		chromedp.WSURLReadTimeout(limit),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses root otherwise
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	browser, end := chromedp.NewContext(allocator)
	defer end()
	shared.browser = browser //nolint:fatcontext // the one context of the browser
	if err := chromedp.Do(browser); err != nil {
		log.Printf("starting %s: %v", path, err)
		return 1
	}
	return m.Run()
}

// chromium returns the path of a browser, or "" if this machine has none.
func chromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// A tab is an open page. The test fails if the page writes to the console: an
// exception, a file that cannot be loaded, or a violation of the policy.
type tab struct {
	t   *testing.T
	ctx context.Context
	end time.Time // messages are allowed from this time on; zero: never
}

// open opens a tab of a given size, and loads an address in it, if there is one.
func open(t *testing.T, url string, width, height int64) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(shared.browser)
	p := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as this context
		t.Fatal(err)
	}
	messages, read := chromedp.Console(ctx), make(chan []chromedp.ConsoleMessage)
	go func() {
		var all []chromedp.ConsoleMessage
		for m, err := range messages {
			if err != nil {
				break
			}
			all = append(all, m)
		}
		read <- all
	}()
	t.Cleanup(func() {
		closeTab()
		for _, m := range <-read {
			if strings.Contains(m.Text, "status of 429") {
				continue // Chromium's own message about a request that was denied
			}
			if p.end.IsZero() || m.Time.Before(p.end) {
				t.Errorf("the page wrote to its console: %s", m)
			}
		}
	})
	p.do(chromedp.EmulateViewport(width, height))
	if url != "" {
		p.load(url)
	}
	return p
}

// live opens the page of a playground with a configuration, such as "?shape=hand", and waits until it receives events.
func live(t *testing.T, server *app, configuration string, width, height int64) *tab {
	t.Helper()
	p := open(t, server.url+"/"+configuration, width, height)
	p.until("live", isLive)
	return p
}

const isLive = `document.getElementById("state").textContent === "Live"`

// load loads the page at url, and waits for its charts.
func (p *tab) load(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
	p.until("a chart for each algorithm", `document.querySelector(".lane") !== null`)
}

// allowMessages allows messages on the console from now on.
func (p *tab) allowMessages() { p.end = time.Now() }

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	get(p, chromedp.Steps(actions...))
}

// click clicks the first element that matches a selector.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// get returns the result of an action.
func get[T any](p *tab, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	got, err := chromedp.Run(ctx, action)
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// eval returns the value of a JavaScript expression.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	return get(p, chromedp.Evaluate[T](expression))
}

// await returns the value of the promise that a JavaScript expression returns.
func await[T any](p *tab, expression string) T {
	p.t.Helper()
	return get(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// until waits until a JavaScript expression is true. what says in the failure message what the test waits for.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	for end := time.Now().Add(limit); !eval[bool](p, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not within %v: %s; the page shows: %s", limit, what, eval[string](p, `(document.getElementById("summary") ?? document.body).innerText`))
		}
	}
}

// lane returns a number that the page has for a lane: peak, admitted, denied or held.
func (p *tab) lane(algorithm, number string) int {
	p.t.Helper()
	return eval[int](p, laneOf(algorithm, number))
}

// laneOf returns an expression for a number of a lane.
func laneOf(algorithm, number string) string {
	return fmt.Sprintf("Number(document.querySelector('[data-lane=%s]').dataset.%s)", algorithm, number)
}
