package spends_test

import (
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// at returns units that were charged when they were admitted.
func at(step int, instant, units int64) spends.Spend {
	return spends.Spend{Units: units, Step: step, From: instant, Until: instant, Charged: step}
}

// held returns units that may be spent from one instant until another.
func held(step int, from, until, units int64) spends.Spend {
	return spends.Spend{Units: units, Step: step, From: from, Until: until}
}

// TestJudge checks, by small histories, which ones the judge accepts.
func TestJudge(t *testing.T) {
	type history = spends.History
	type spent = []spends.Spend
	type debts = []spends.Debt
	bucket := spends.Limit{Kind: spends.Bucket, Count: 1, Period: 10, Capacity: 3}
	log := spends.Limit{Kind: spends.Log, Period: 10, Capacity: 3}
	aligned := spends.Limit{Kind: spends.Aligned, Period: 10, Capacity: 3}
	windows := spends.Limit{Kind: spends.Windows, Period: 10, Capacity: 3}
	counter := spends.Limit{Kind: spends.Counter, Period: 10, Capacity: 3}
	charged := func(s spends.Spend, step int) spends.Spend {
		s.Charged = step
		return s
	}
	opened := []spends.Window{{100, 110}, {115, 125}}
	for name, c := range map[string]struct {
		limit   spends.Limit
		history history
		ok      bool
	}{
		"bucket: full":                          {bucket, history{Spends: spent{at(1, 100, 3), at(2, 110, 1)}}, true},
		"bucket: too early":                     {bucket, history{Spends: spent{at(1, 100, 3), at(2, 109, 1)}}, false},
		"bucket: later than a full one":         {bucket, history{Spends: spent{at(1, 100, 3), at(2, 120, 2), at(3, 121, 1)}}, false},
		"bucket: spent late":                    {bucket, history{Spends: spent{held(1, 100, 140, 1), at(2, 140, 3)}}, false},
		"bucket: spent late, and less":          {bucket, history{Spends: spent{held(1, 100, 140, 1), at(2, 140, 2)}}, true},
		"bucket: a debt":                        {bucket, history{Spends: spent{at(2, 120, 1)}, Debts: debts{{5, 1, 100}}}, false},
		"bucket: a debt that is paid":           {bucket, history{Spends: spent{at(2, 130, 1)}, Debts: debts{{5, 1, 100}}}, true},
		"bucket: a debt after it":               {bucket, history{Spends: spent{at(1, 100, 1)}, Debts: debts{{5, 2, 100}}}, true},
		"bucket: a reset":                       {bucket, history{Spends: spent{at(1, 100, 3), at(3, 100, 3)}, Resets: []int{2}}, true},
		"bucket: a reset of what is held":       {bucket, history{Spends: spent{held(1, 100, 110, 3), at(3, 100, 1)}, Resets: []int{2}}, false},
		"bucket: a reset before the charge":     {bucket, history{Spends: spent{charged(held(1, 100, 100, 3), 3), at(4, 100, 1)}, Resets: []int{2}}, false},
		"bucket: a reset after it all":          {bucket, history{Spends: spent{at(1, 100, 3), at(2, 100, 3)}, Resets: []int{3}}, false},
		"bucket: two resets":                    {bucket, history{Spends: spent{at(1, 100, 3), at(3, 100, 3), at(5, 100, 3)}, Resets: []int{2, 4}}, true},
		"bucket: a debt that was reset":         {bucket, history{Spends: spent{at(3, 100, 3)}, Debts: debts{{5, 1, 100}}, Resets: []int{2}}, true},
		"log: full":                             {log, history{Spends: spent{at(1, 100, 3), at(2, 110, 3)}}, true},
		"log: too early":                        {log, history{Spends: spent{at(1, 100, 3), at(2, 109, 1)}}, false},
		"log: spent late":                       {log, history{Spends: spent{held(1, 100, 105, 2), at(2, 114, 2)}}, false},
		"log: spent late, out of the window":    {log, history{Spends: spent{held(1, 100, 105, 2), at(2, 115, 2)}}, true},
		"log: spent later":                      {log, history{Spends: spent{held(1, 100, 120, 2), at(2, 110, 2)}}, false},
		"log: a debt":                           {log, history{Spends: spent{at(2, 109, 1)}, Debts: debts{{3, 1, 100}}}, false},
		"aligned: two windows":                  {aligned, history{Spends: spent{at(1, 109, 3), at(2, 110, 3)}}, true},
		"aligned: one window":                   {aligned, history{Spends: spent{at(1, 100, 3), at(2, 109, 1)}}, false},
		"aligned: spent in the next":            {aligned, history{Spends: spent{held(1, 109, 110, 1), at(2, 115, 3)}}, false},
		"aligned: spent in either":              {aligned, history{Spends: spent{held(1, 99, 110, 1), at(2, 105, 2), at(3, 115, 2)}}, true},
		"windows: as opened":                    {windows, history{Spends: spent{at(1, 100, 3), at(2, 115, 3)}, Opened: opened}, true},
		"windows: too many":                     {windows, history{Spends: spent{at(1, 100, 3), at(2, 105, 1)}, Opened: opened[:1]}, false},
		"windows: spent in the next":            {windows, history{Spends: spent{held(1, 100, 115, 1), at(2, 116, 3)}, Opened: opened}, false},
		"windows: spent between":                {windows, history{Spends: spent{held(1, 100, 112, 2), held(2, 111, 112, 2)}, Opened: opened[:1]}, false},
		"windows: spent before any":             {windows, history{Spends: spent{held(1, 90, 95, 2), held(2, 91, 96, 2)}}, false},
		"counter: as weighed":                   {counter, history{Spends: spent{at(1, 100, 3), at(2, 114, 1), at(3, 120, 2)}}, true},
		"counter: 6 of 10 is not enough":        {counter, history{Spends: spent{at(1, 100, 3), at(2, 114, 2)}}, false},
		"counter: two windows on":               {counter, history{Spends: spent{at(1, 100, 3), at(2, 120, 3)}}, true},
		"counter: spent in the next":            {counter, history{Spends: spent{held(1, 100, 110, 2), at(2, 119, 2)}}, false},
		"counter: at the boundary":              {counter, history{Spends: spent{held(1, 100, 110, 2), at(2, 109, 2)}}, false},
		"counter: a debt":                       {counter, history{Spends: spent{at(2, 115, 1)}, Debts: debts{{5, 1, 100}}}, false},
		"counter: a debt that weighs less":      {counter, history{Spends: spent{at(2, 116, 1)}, Debts: debts{{5, 1, 100}}}, true},
		"nothing":                               {bucket, history{}, true},
		"more than the capacity at one instant": {counter, history{Spends: spent{at(1, 100, 4)}}, false},
	} {
		if err := spends.Judge(c.limit, c.history); (err == nil) != c.ok {
			t.Errorf("%s: got error %v, want the history accepted: %v", name, err, c.ok)
		}
	}
}
