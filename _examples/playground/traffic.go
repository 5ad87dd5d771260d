package main

import "time"

// A shape says how the synthetic traffic is spread over time.
type shape string

// These are the shapes. Each sends config.Traffic requests per period, unless its comment says otherwise.
const (
	steady   shape = "steady"   // evenly spread
	bursts   shape = "bursts"   // all requests at once, in the middle of each window
	boundary shape = "boundary" // all requests just before the end of a window, and all again just after it; then a pause
	clients  shape = "clients"  // evenly spread by one client, and half the rate by another
	byHand   shape = "hand"     // no traffic, only requests by hand
)

func shapes() []shape { return []shape{steady, bursts, boundary, clients, byHand} }

// These are the clients. Each has counts of its own.
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
	edge      = 250 * time.Millisecond                  // the time between an attack and the boundary, because clocks differ a little
	headStart = burstTime + edge + 400*time.Millisecond // including time for the user to choose something else
)

// arrivals returns the traffic of the nth window, in order of time.
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

// spread distributes n requests evenly over a period of a given length that begins at from.
func spread(client string, n int64, from, length time.Duration) []arrival {
	list := make([]arrival, n)
	for i := range list {
		list[i] = arrival{from + length*time.Duration(2*i+1)/time.Duration(2*n), client}
	}
	return list
}

// merge merges two lists of arrivals in order of time.
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
