package browser

import (
	"fmt"
	"testing"
)

// TestShapes checks how the other shapes of traffic change the lanes.
func TestShapes(t *testing.T) {
	t.Parallel()
	server := start(t)
	for _, test := range []struct {
		shape   string
		traffic int
		moves   string // an expression that must become true
		never   string // an expression that must stay false
		says    string // the beginning of the summary
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
				t.Errorf("the expression %s is true, want false", test.never)
			}
			p.keep("playground-" + test.shape + ".png")
		})
	}
}

// TestProcesses watches three processes: with one Redis, they must serve the limit together, and with counts of their own three times the limit.
// In an outage, each process must serve a third of the limit.
func TestProcesses(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := open(t, server.url+"/?shape=hand&rate=12", desktop, height)
	const count = `document.querySelector("[data-lane=%s] .count").textContent.match(/^(%s) of (2[5-9]|3\d) served$/) !== null`
	p.until("the limit over one Redis", fmt.Sprintf(count, "one_redis", "1[0-2]"))
	p.until("three limits by themselves", fmt.Sprintf(count, "by_itself", "2[5-9]|3\\d"))
	p.wantCode("#processes-section .code", "\n\t\tcore.Processes(3),\n") // this brings the chart into view, too
	p.looksWell("processes")
	p.click("#outage .stop")
	p.until("a third for each", fmt.Sprintf(count, "one_redis", "[89]|1[0-3]")+` &&
		document.querySelector("[data-lane=one_redis] .because").textContent === "each takes a third of the limit"`)
	p.click("#outage .stop")
	p.until("Redis, again", `document.getElementById("redis").textContent === "Redis answers"`)
	p.until("the limit over one Redis, again", fmt.Sprintf(count, "one_redis", "1[0-2]"))
}

// TestCost sends requests that cost three units each: all algorithms must keep their promises, counted in requests, and a request that costs
// more than the limit must never be admitted.
func TestCost(t *testing.T) {
	t.Parallel()
	server := start(t)
	p := open(t, server.url+"/?shape=bursts&cost=3&traffic=20&rate=20&burst=20", desktop, height)
	p.until("the words", `document.getElementById("summary").textContent.startsWith("20 at once, with a limit of 20 units per 5 s, 3 each")`)
	const (
		more = "([6-9]|1[0-3])"
		half = "([3-9]|1[0-3])" // a part of the burst before still counts: 6, 3, 5, and then always 4
	)
	for lane, most := range map[string]string{
		"sliding_window_log": "6", "in_flight": "6", "leaky_bucket": "[67]",
		"fixed_window": more, "sliding_window_counter": half, "token_bucket": more, "gcra": more, "two_limits": more, // served in two bursts
	} {
		p.until(lane+" serves what fits", fmt.Sprintf(`document.querySelector("[data-lane=%s] .count").textContent.match(/^%s at/) !== null`, lane, most))
	}
	p.until("what both limits deny", `
		document.querySelector("[data-lane=two_limits] .more").textContent.match(/^denied [1-9]\d*, [1-9]\d* by the second$/) !== null`)
	if broken := eval[int](p, `document.querySelectorAll(".broken").length`); broken > 0 {
		t.Errorf("%d promises are broken, want none: %s", broken, eval[string](p, `document.querySelector("main").innerText`))
	}
	p.wantCode("[data-lane=in_flight] .code", "\n\t\tcore.InFlight(20),\n", "guard.Cost(func(keyfunc.Request) int64 { return 3 })")
	p.looksWell("cost")
	p.load(server.url + "/?shape=steady&cost=5&rate=3")
	p.until("never", `document.getElementById("summary").textContent.endsWith("it can never be admitted.")`)
}
