package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestTraffic uses a simulated clock.
func TestTraffic(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]time.Duration{
		"at the beginning of a window": 0,
		"in the middle":                period / 2,
		"just before the end":          period - headStart/2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const ahead = 90 * time.Minute // of Redis's clock
				clock := func() time.Time { return time.Now().Add(ahead) }
				time.Sleep(windowOf(clock()).Add(period + late).Sub(clock()))
				began := clock()
				c := config{Rate: 10, Burst: 10, Traffic: 3, Shape: boundary}
				var edges []time.Duration // of each arrival from the nearest boundary
				for range c.traffic(t.Context(), firstWindow(began), began, clock) {
					since := clock().Sub(windowOf(clock()))
					edges = append(edges, min(since, period-since))
					if len(edges) == 6 {
						break
					}
				}
				if took := clock().Sub(began); took > 2*period {
					t.Errorf("the attack took %v", took)
				}
				if far := slices.Max(edges); far > edge+burstTime {
					t.Errorf("%v from the boundary", far)
				}
			})
		})
	}
}

func TestTrafficLeavesOutWhatIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := config{Rate: 10, Burst: 10, Traffic: 50, Shape: steady} // one each 100 ms
		time.Sleep(time.Until(windowOf(time.Now()).Add(period)))
		began, count := time.Now(), 0
		for range c.traffic(t.Context(), firstWindow(began), began, time.Now) {
			if count++; count == 1 {
				time.Sleep(3 * time.Second) // like a suspended machine
			}
			if time.Since(began) >= period-100*time.Millisecond {
				break
			}
		}
		if count < 15 || count > 25 {
			t.Errorf("%d arrivals in the 2 s that were left", count)
		}
	})
}

// TestPastAndTrafficAreOne checks that the requests before an instant and those from it
// on are the same ones, wherever it is: none twice, and none left out.
func TestPastAndTrafficAreOne(t *testing.T) {
	t.Parallel()
	for _, s := range shapes() {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			c := config{Rate: 10, Burst: 10, Traffic: 7, Shape: s}
			start := windowOf(time.Unix(1_800_000_000, 0))
			from, until := start.Add(-4*period), start.Add(2*period)
			all := c.between(from, until, start)
			want := map[shape]int{steady: 42, bursts: 42, boundary: 42, clients: 72, byHand: 0}[s]
			if len(all) != want {
				t.Errorf("%d requests in 6 windows, want %d", len(all), want)
			}
			if !slices.IsSortedFunc(all, func(a, b moment) int { return a.at.Compare(b.at) }) {
				t.Errorf("not in order: %v", all)
			}
			if two := slices.ContainsFunc(all, func(m moment) bool { return m.client != clientA }); two != (s == clients) {
				t.Errorf("whether there is another client: %t", two)
			}
			for middle := from; middle.Before(until); middle = middle.Add(700 * time.Millisecond) {
				if parts := slices.Concat(c.between(from, middle, start), c.between(middle, until, start)); !slices.Equal(parts, all) {
					t.Fatalf("cut at %v: %d requests, want %d", middle.Sub(start), len(parts), len(all))
				}
			}
			synctest.Test(t, func(t *testing.T) {
				start := windowOf(time.Now()).Add(period)
				live := start.Add(period / 2)
				time.Sleep(time.Until(live))
				var got []moment
				if s == byHand {
					return // its traffic never comes
				}
				for a := range c.traffic(t.Context(), start, live, time.Now) {
					if got = append(got, moment{time.Now(), a.client}); time.Since(live) > 2*period {
						break
					}
				}
				if !slices.EqualFunc(got[:10], c.between(live, live.Add(3*period), start)[:10], func(a, b moment) bool {
					return a.at.Equal(b.at) && a.client == b.client
				}) {
					t.Errorf("live: %v", got[:10])
				}
			})
		})
	}
}
