package main

import "time"

// A shape is how the synthetic traffic is spread over time.
type shape string

// The shapes. Each sends config.Traffic requests per period unless it says otherwise.
const (
	steady   shape = "steady"   // evenly spread
	bursts   shape = "bursts"   // all at once, in the middle of each window
	boundary shape = "boundary" // all just before the end of a window, and all again just after it; then a pause
	clients  shape = "clients"  // steady by one client, half the rate by another
	byHand   shape = "hand"     // none: only requests by hand
)

func shapes() []shape { return []shape{steady, bursts, boundary, clients, byHand} }

// The clients. Each has its own counts.
const (
	clientA = "a"
	clientB = "b"
)

// clients returns the clients of the traffic.
func (c config) clients() []string {
	if c.Shape == clients {
		return []string{clientA, clientB}
	}
	return []string{clientA}
}

// An arrival is one request of the traffic.
type arrival struct {
	at     time.Duration // since the beginning of the window
	client string
}

const (
	burstTime = 400 * time.Millisecond                  // the duration of a burst
	edge      = 250 * time.Millisecond                  // between an attack and the boundary, because clocks differ a little
	headStart = burstTime + edge + 400*time.Millisecond // with time for the page to choose something else
)

// arrivals returns the traffic of the n-th window, in order of time.
func (c config) arrivals(n int64) []arrival {
	switch c.Shape {
	case steady:
		return spread(clientA, c.Traffic, 0, period)
	case bursts:
		return spread(clientA, c.Traffic, period/2, burstTime)
	case boundary:
		if n%2 == 0 {
			return spread(clientA, c.Traffic, period-edge-burstTime, burstTime)
		}
		return spread(clientA, c.Traffic, edge, burstTime)
	case clients:
		return merge(spread(clientA, c.Traffic, 0, period), spread(clientB, c.Rate/2, 0, period))
	default:
		return nil
	}
}

// spread distributes n requests evenly over a time that begins at from.
func spread(client string, n int64, from, length time.Duration) []arrival {
	list := make([]arrival, n)
	for i := range list {
		list[i] = arrival{from + length*time.Duration(2*i+1)/time.Duration(2*n), client}
	}
	return list
}

// merge merges two lists in order of time.
func merge(a, b []arrival) []arrival {
	list := make([]arrival, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0].at < a[0].at {
			a, b = b, a
		}
		list, a = append(list, a[0]), a[1:]
	}
	return append(append(list, a...), b...)
}
