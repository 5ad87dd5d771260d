package main

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/mini"
)

// embeddedRedis starts a Redis like the embedded one of the playground, and returns a client.
func embeddedRedis(t *testing.T) *redis.Client { return clientOf(t, mini.Redis(t)) }

// backendOf returns a backend that uses one client for everything.
func backendOf(client *redis.Client) *backend {
	b := &backend{client: client, timeout: time.Minute}
	for i := range b.others {
		b.others[i] = client
	}
	return b
}

func clientOf(t *testing.T, server *miniredis.Miniredis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestAttackOnEachAlgorithm sends two attacks, with a simulated clock, and counts how many requests
// each algorithm admits within one period.
func TestAttackOnEachAlgorithm(t *testing.T) {
	t.Parallel()
	server := mini.Redis(t)
	admitted := make(map[string][]time.Duration)
	c := defaults()
	var now time.Duration
	lanes, err := newLanes(backendOf(clientOf(t, server)), "test", c, time.Now, func(_ hit, d decision) {
		if d.Allowed {
			admitted[d.Lane] = append(admitted[d.Lane], now+time.Duration(d.Delay*float64(time.Millisecond)))
		}
	}, core.DenyCache(0)) // the deny cache would use the real clock
	if err != nil {
		t.Fatal(err)
	}
	start := windowOf(time.Now())
	for n := range int64(4) {
		for _, a := range c.arrivals(n) {
			now = time.Duration(n)*period + a.at
			server.SetTime(start.Add(now))
			for _, l := range streams(c, lanes)[algorithms].lanes {
				if l.kind().Slots {
					continue // the work of its requests takes real time
				}
				if l.kind().Delays { // the handler would hold the request in real time
					if r, err := l.limiter.Allow(t.Context(), keyOf(a.client)); err == nil && r.Allowed {
						admitted[l.name] = append(admitted[l.name], now+r.Delay)
					}
					continue
				}
				l.serve(t.Context(), hit{a.client, "traffic"})
			}
		}
	}
	bounds := map[string][2]int{
		"fixed_window":           {20, 20},
		"sliding_window_log":     {10, 10},
		"sliding_window_counter": {10, 12},
		"token_bucket":           {10, 13},
		"gcra":                   {10, 13},
		"leaky_bucket":           {10, 10},
		"two_limits":             {10, 13},
		"in_flight":              {0, 0},
	}
	for _, l := range streams(c, lanes)[algorithms].lanes {
		want, ok := bounds[l.name]
		if !ok {
			want = [2]int{10, 20} // no algorithm denies requests within its limit, or admits more than twice the limit
		}
		if got := mostInAPeriod(admitted[l.name]); got < want[0] || got > want[1] {
			t.Errorf("%s: %d requests were admitted in one period, want %d to %d", l.name, got, want[0], want[1])
		}
	}
	served := admitted["leaky_bucket"]
	for i := 1; i < 10; i++ {
		if gap := served[i] - served[i-1]; gap < 499*time.Millisecond || gap > 530*time.Millisecond {
			t.Errorf("leaky bucket: request %d was served %v after the one before, want 499ms to 530ms", i, gap)
		}
	}
}

// mostInAPeriod returns the largest number of times that lie within one period.
func mostInAPeriod(times []time.Duration) int {
	slices.Sort(times)
	most, first := 0, 0
	for last := range times {
		for times[last]-times[first] >= period {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}
