package browser

import (
	"fmt"
	"testing"
)

// TestShapes checks what the other shapes of traffic do to the lanes.
func TestShapes(t *testing.T) {
	t.Parallel()
	server := start(t)
	for _, test := range []struct {
		shape   string
		traffic int
		moves   string // must become true
		never   string // must stay false
		says    string // the summary
	}{
		{
			"bursts", 15,
			laneOf("leaky_bucket", "held") + " >= 9 && " + laneOf("token_bucket", "denied") + " >= 5",
			laneOf("sliding_window_log", "peak") + " > 10",
			"15 at once",
		},
		{
			"steady", 8,
			laneOf("fixed_window", "admitted") + " >= 8 && " + laneOf("gcra", "admitted") + " >= 8",
			laneOf("fixed_window", "denied") + " > 0 || " + laneOf("leaky_bucket", "denied") + " > 0",
			"Steady traffic within the limit",
		},
		{
			"clients", 40,
			laneOf("fixed_window", "denied") + " > 20 && " + laneOf("leaky_bucket", "denied") + " > 20",
			`!document.getElementById("summary").textContent.includes("b was denied nothing")`,
			"Each client has a limit of its own",
		},
	} {
		t.Run(test.shape, func(t *testing.T) {
			t.Parallel()
			p := open(t, fmt.Sprintf("%s/?shape=%s&traffic=%d", server.url, test.shape, test.traffic), desktop, height)
			p.until("moving", test.moves)
			p.until("words", fmt.Sprintf(`document.getElementById("summary").textContent.startsWith(%q)`, test.says))
			if eval[bool](p, test.never) {
				t.Errorf("must not be true: %s", test.never)
			}
			p.keep("playground-" + test.shape + ".png")
		})
	}
}
