//go:build race

package outage

// burst is how many decisions come at once in TestBurst: for the race detector as much work as 50,000 without it.
const burst = 10_000
