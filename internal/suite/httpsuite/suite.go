// Package httpsuite is the suite that every adapter must pass over HTTP. [Exercise] makes each framework, through its
// [Adapter], serve the same [App]s, and sends them the same requests.
package httpsuite

import (
	"slices"
	"testing"
)

// A testCase is one thing that an adapter must do.
type testCase struct {
	name  string
	run   func(*testbed)
	needs []Ability
}

// Exercise runs every case through the adapter a.
func Exercise(t *testing.T, a Adapter) {
	for _, c := range slices.Concat(
		verdictCases(), keyCases(), failureCases(), headerCases(), ietfCases(), retryCases(), dryRunCases(), answerCases(),
		endingCases(), settleCases(), writerCases(), stackCases(), andCases(), orderCases(), routeCases(),
		connectionCases(), delayCases(), waitCases(), reuseCases(), loggerCases(), answererCases(), cachingCases(), unlimitedCases(),
		[]testCase{{"Drain", drain, []Ability{Gone}}},
	) {
		t.Run(c.name, func(t *testing.T) {
			b := newTestbed(t, a)
			for _, need := range c.needs {
				b.need(need)
			}
			c.run(b)
		})
	}
}

// need skips the test if the framework does not have the ability.
func (b *testbed) need(ability Ability) {
	b.Helper()
	if reason := b.adapter.Lacks[ability]; reason != "" {
		b.Skip(reason)
	}
}

// each runs a subtest on a testbed of its own.
func (b *testbed) each(name string, run func(*testbed)) {
	b.Helper()
	b.Run(name, func(t *testing.T) { run(newTestbed(t, b.adapter)) })
}
