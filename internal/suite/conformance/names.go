package conformance

import (
	"math/big"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// nameFamily names the histories of one named limit that becomes another limit again and again: of another algorithm, form,
// time zone, period, rate or capacity, as when a service is deployed or a customer's plan changes. Limits that differ have
// different keys in Redis, with two exceptions: the rate and capacity of a bucket and the count of any other limit are not
// part of the key. So each key is judged separately, by the largest count or capacity and the largest rate that it has had.
const nameFamily = "names"

// names holds the forms that the limit of a trial has had, and the judge of each.
type names struct {
	*trial

	specs  []spec
	judges map[any]*judged // by the parts of a limit that identify its Redis key
}

// A judged is the record of a key that is not the present limit's key.
type judged struct {
	*spends.Recorder

	limit model.Limit // the last limit that charged the key
}

func newNames(tr *trial) *names { return &names{trial: tr, judges: map[any]*judged{}} }

// move moves the clock of the judges of all keys except the present one by d.
func (n *names) move(d int64) {
	for _, j := range n.judges {
		j.Next(d, func(t int64) int64 { return n.model.ClockOf(0, j.limit, t) })
	}
}

// change makes the limit one that it has been before, or any other.
func (n *names) change(t *testing.T) {
	t.Helper()
	next := n.any()
	if len(n.specs) > 0 && n.IntN(2) == 0 {
		next = n.specs[n.IntN(len(n.specs))]
	}
	old := n.trial.specs[0]
	next.hold = old.hold
	n.trial.specs[0] = next
	if !n.fits(n.excess) {
		n.trial.specs[0] = old
		return
	}
	n.specs = append(n.specs, old, next)
	n.notef("the limit becomes another")
	n.served, n.changed, n.forward = nil, n.changed || next.burst > 0, true
	if n.store.ForgetsByClock { // the key of another form may be kept for longer than this form needs it
		n.charged, n.held = nil, nil
	}
	n.judgeBy(old, next)
	n.remake(t)
	n.trial.specs[0].shortest = next.window()
}

// any returns a random limit of any algorithm and form.
func (n *names) any() spec {
	all := limits.All()
	next := n.spec(all[n.IntN(len(all))].Name)
	next.shortest = next.window()
	return next
}

// judgeBy keeps the judge of the old limit in case its key comes back, and finds or makes the judge of the next limit.
func (n *names) judgeBy(old, next spec) {
	if n.trial.judges == nil { // the clock has stepped back, or state was lost
		return
	}
	n.judges[old.model().Key()] = &judged{n.trial.judges[0], old.model()}
	known := n.judges[next.model().Key()]
	if known == nil || next.queues() { // a queue keeps its delays when its rate changes, so they count as other units
		n.trial.judges = []*spends.Recorder{spends.NewRecorder(next.judge(), n.now)}
		return
	}
	delete(n.judges, next.model().Key())
	known.Limit = largest(known.Limit, next.judge())
	n.trial.judges = []*spends.Recorder{known.Recorder}
}

// largest returns a limit for what two limits of one Redis key may admit together.
func largest(a, b spends.Limit) spends.Limit {
	capacity := max(a.Capacity, b.Capacity)
	if big.NewRat(a.Count, a.Period).Cmp(big.NewRat(b.Count, b.Period)) < 0 {
		a = b
	}
	a.Capacity = capacity
	return a
}
