package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

const (
	rate        = 10 // the default of the page
	phoneWidth  = 390
	phoneHeight = 844
	desktop     = 1280
	height      = 880
)

// TestBoundaryAttack opens the page with its defaults, and checks that it shows the attack on a window boundary at once.
func TestBoundaryAttack(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := live(t, server, "", desktop, height)
	p.until("a report", laneOf("fixed_window", "admitted")+" >= 0")
	early := `import("./app.js").then(({ lanes }) => lanes.some(({ history }) => history.marks.some((m) => m.at < performance.timeOrigin)))`
	if took := eval[float64](p, "performance.now()"); took < 10_000 && !await[bool](p, early) { // the charts begin 15 s before the page was opened
		t.Errorf("the charts show no traffic from before the page was opened, %.0f ms ago", took)
	}
	p.until("a chart that moves", "(window.first ??= "+chart("fixed_window")+") !== "+chart("fixed_window"))
	p.until("more than the limit through the fixed window", laneOf("fixed_window", "peak")+" > 10")
	p.until("all of the attack", laneOf("sliding_window_log", "denied")+" >= 15")
	p.until("the summary of the attack", `document.getElementById("summary").textContent.startsWith("Around a window boundary the fixed window let")`)
	p.until("requests held and served", laneOf("leaky_bucket", "peak")+" > 7")
	if peak := p.lane("fixed_window", "peak"); peak > 2*rate {
		t.Errorf("fixed window: %d requests were admitted in one period, want at most %d", peak, 2*rate)
	}
	for _, algorithm := range []string{"sliding_window_log", "leaky_bucket"} {
		if peak := p.lane(algorithm, "peak"); peak == 0 || peak > rate {
			t.Errorf("%s: %d requests in one period, want 1 to %d", algorithm, peak, rate)
		}
	}

	p.until("requests in flight", laneOf("in_flight", "peak")+" > 7")
	p.until("all served by the leaky bucket, and the attack still on screen",
		`document.querySelector("[data-lane=leaky_bucket] .more").textContent.startsWith("waiting 0")`)
	p.do(chromedp.EmulateViewport(desktop, 1170)) // high enough to show the processes
	p.redrawn()
	light := p.keep("playground-attack.png")
	if os.Getenv(picturesEnv) != "" {
		picture := slim(t, light)
		if len(picture) > 200_000 {
			t.Errorf("the README's picture has %d bytes, want at most 200,000", len(picture))
		}
		write(t, filepath.Join(docsDir, "playground.png"), picture)
	}
	for _, width := range []int64{1600, 1024, 900, 700, 360, 320} {
		p.do(chromedp.EmulateViewport(width, phoneHeight))
		p.redrawn()
		p.wordsApart(fmt.Sprint(width))
		p.fits(fmt.Sprint(width))
		p.keep(fmt.Sprintf("playground-%d.png", width))
	}

	p.allowMessages()
	server.stop(t) // the page still reads events
	p.until("the message that the server has stopped", `document.getElementById("state").textContent.startsWith("Not connected")`)
}

// chart returns an expression for the picture of a lane's chart.
func chart(algorithm string) string {
	return "document.querySelector('[data-lane=" + algorithm + "] canvas').toDataURL()"
}
