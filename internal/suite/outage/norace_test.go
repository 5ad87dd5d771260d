//go:build !race

package outage

// burst is how many decisions come at once in TestBurst.
const burst = 50_000
