// Package lease tests leases: what is spent, and when, over a real Redis. It holds tests only.
package lease
