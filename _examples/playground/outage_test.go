package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/mini"
)

// TestStopRedis stops the Redis of one page and starts it again, for each kind of Redis
// that a page can have.
func TestStopRedis(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]func(*testing.T) redis.UniversalClient{
		"embedded": func(*testing.T) redis.UniversalClient { return nil },
		"server":   func(t *testing.T) redis.UniversalClient { return embeddedRedis(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{mini.Redis(t).Addr()}})
			t.Cleanup(func() { _ = client.Close() })
			return client
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := serve(t, shared(t))
			testStopRedis(t, url)
		})
	}
}

// testStopRedis stops the Redis of one of two pages, and checks what the limiters of both decide, and the events.
func testStopRedis(t *testing.T, url string) {
	t.Helper()
	stopped, other := follow(t, url, "shape=hand"), follow(t, url, "shape=hand")
	h, untouched := next[hello](stopped), next[hello](other)
	hit := func(h hello, lane string) int {
		return do(t, http.MethodPost, url+"/hit/"+lane+"?session="+h.ID, "").status
	}
	if got := hit(h, "fail_closed"); got != http.StatusOK && got != http.StatusTooManyRequests {
		t.Fatalf("before Redis is stopped: got status %d, want 200 or 429", got)
	}
	change := func(state string) {
		if r := do(t, http.MethodPost, url+"/sessions/"+h.ID+"/redis/"+state, ""); r.status != http.StatusNoContent {
			t.Fatalf("%s: got status %d, %s; want 204", state, r.status, r.body)
		}
	}
	change("stop")
	change("stop") // has no effect
	wantOutage := func(want string) (at float64) {
		o := next[outage](stopped)
		if o.State != want {
			t.Fatalf("the page received the outage %q, want %q", o.State, want)
		}
		return o.At
	}
	wantOutage("stopped")
	noticed := wantOutage("noticed")
	for lane, want := range map[string]int{"fail_open": http.StatusOK, "fail_closed": http.StatusServiceUnavailable} {
		for hit(h, lane) == http.StatusTooManyRequests { // the deny cache repeats an earlier denial
			time.Sleep(50 * time.Millisecond)
		}
		for range 5 {
			if got := hit(h, lane); got != want {
				t.Errorf("%s: got status %d, want %d", lane, got, want)
			}
		}
	}
	if got := hit(untouched, "fail_closed"); got != http.StatusOK && got != http.StatusTooManyRequests {
		t.Errorf("another page, whose Redis was not stopped: got status %d, want 200 or 429", got)
	}
	seen := map[string]map[bool]int{"fail_local": {}, "fail_open": {}, "fail_closed": {}}
	for seen["fail_local"][false] == 0 || seen["fail_local"][true] == 0 {
		d := next[decision](stopped)
		switch count := seen[d.Lane]; {
		case count == nil, d.At < noticed, d.Source == "deny_cache":
		case d.Lane == "fail_local" && d.Source != "fallback", d.Lane != "fail_local" && d.Used >= 0:
			t.Errorf("while Redis is stopped: got the decision %+v, want one by the outage policy", d)
		default:
			count[d.Allowed]++
		}
	}
	if seen["fail_open"][false] > 0 || seen["fail_closed"][true] > 0 {
		t.Errorf("got the decisions %v, want no denials by fail_open and no admissions by fail_closed", seen)
	}
	change("start")
	wantOutage("started")
	wantOutage("over")
	if got := hit(h, "fail_closed"); got != http.StatusOK && got != http.StatusTooManyRequests {
		t.Errorf("after Redis was started: got status %d, want 200 or 429", got)
	}
}
