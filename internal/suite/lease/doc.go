// Package lease tests leases over a real Redis: how many units are spent, and when. It has tests only. The list lease.txt
// of internal/tools/mutants shows which test notices which broken rule.
//
// Package conformance (internal/suite/conformance) tests the other rules of holds. Package model (internal/testkit/model)
// runs both in all short histories of a model.
package lease
