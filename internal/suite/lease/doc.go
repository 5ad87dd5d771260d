// Package lease tests leases: what is spent, and when, over a real Redis. It holds tests only. The list
// lease.txt of internal/tools/mutants says which test notices which broken rule.
//
// The other rules of holds are in internal/suite/conformance, and both once more in all short
// histories of a model, in internal/testkit/model.
package lease
