package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestTraffic checks that an attack on a window boundary comes soon, whenever the traffic begins, and close to a boundary.
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
				const ahead = 90 * time.Minute // how far Redis's clock is ahead
				clock := func() time.Time { return time.Now().Add(ahead) }
				time.Sleep(windowOf(clock()).Add(period + late).Sub(clock()))
				began := clock()
				c := config{Rate: 10, Burst: 10, Traffic: 3, Shape: boundary}
				var edges []time.Duration // the distance of each arrival from the nearest boundary
				for range c.traffic(t.Context(), firstWindow(began), began, clock) {
					since := clock().Sub(windowOf(clock()))
					edges = append(edges, min(since, period-since))
					if len(edges) == 6 {
						break
					}
				}
				if took := clock().Sub(began); took > 2*period {
					t.Errorf("the attack took %v, want at most %v", took, 2*period)
				}
				if far := slices.Max(edges); far > edge+burstTime {
					t.Errorf("an arrival is %v from the boundary, want at most %v", far, edge+burstTime)
				}
			})
		})
	}
}

// TestTrafficLeavesOutWhatIsLate checks that requests that are late, as after a machine was suspended, are left out.
func TestTrafficLeavesOutWhatIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := config{Rate: 10, Burst: 10, Traffic: 50, Shape: steady} // one request every 100 ms
		time.Sleep(time.Until(windowOf(time.Now()).Add(period)))
		began, count := time.Now(), 0
		for range c.traffic(t.Context(), firstWindow(began), began, time.Now) {
			if count++; count == 1 {
				time.Sleep(3 * time.Second) // as if the machine was suspended
			}
			if time.Since(began) >= period-100*time.Millisecond {
				break
			}
		}
		if count < 15 || count > 25 {
			t.Errorf("%d arrivals, want 15 to 25: one, and those of the last 2 s", count)
		}
	})
}

// TestPastAndTrafficAreOne checks that between and traffic return the same requests, and that requests are neither repeated nor left out
// at the time between the past and the live traffic, wherever that is.
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
				t.Errorf("got the requests %v, want them in order", all)
			}
			if two := slices.ContainsFunc(all, func(m moment) bool { return m.client != clientA }); two != (s == clients) {
				t.Errorf("requests of another client: got %t, want %t", two, s == clients)
			}
			for middle := from; middle.Before(until); middle = middle.Add(700 * time.Millisecond) {
				if parts := slices.Concat(c.between(from, middle, start), c.between(middle, until, start)); !slices.Equal(parts, all) {
					t.Fatalf("divided at %v: got %d requests, want the same %d", middle.Sub(start), len(parts), len(all))
				}
			}
			synctest.Test(t, func(t *testing.T) {
				start := windowOf(time.Now()).Add(period)
				live := start.Add(period / 2)
				time.Sleep(time.Until(live))
				var got []moment
				if s == byHand {
					return // this shape has no traffic
				}
				for a := range c.traffic(t.Context(), start, live, time.Now) {
					if got = append(got, moment{time.Now(), a.client}); time.Since(live) > 2*period {
						break
					}
				}
				if !slices.EqualFunc(got[:10], c.between(live, live.Add(3*period), start)[:10], func(a, b moment) bool {
					return a.at.Equal(b.at) && a.client == b.client
				}) {
					t.Errorf("the live traffic begins with %v, want the requests that between returns", got[:10])
				}
			})
		})
	}
}
