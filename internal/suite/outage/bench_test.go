package outage

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// BenchmarkDecisionUnderFault measures how long a decision takes under each fault, with a client of go-redis's defaults and
// the default Timeout. Eight callers make a call every 2 ms, for 5 s from the moment the fault begins. The benchmark prints
// the table of docs/proofs.md, when it is run by:
//
//	go test -run '^$' -bench . -benchtime 1x ./internal/suite/outage
func BenchmarkDecisionUnderFault(b *testing.B) {
	const callers, pause, lasts = 8, 2 * time.Millisecond, 5 * time.Second
	none := fault{name: "none", on: func(testing.TB, *env) {}, off: func(testing.TB, *env) {}}
	var table []string
	for _, f := range append([]fault{none}, append(faults(), killed())...) {
		b.Run(f.name, func(b *testing.B) {
			for range b.N {
				e := newEnv(b, f.setup)
				l, watch := limiter(e.rdb, "bench")
				if _, err := l.Allow(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
				f.on(b, e)
				var mu sync.Mutex
				var took []time.Duration
				var running sync.WaitGroup
				for i := range callers {
					key := fmt.Sprint("k", i) // each call has a key of its own, so that none is denied
					running.Go(func() {
						var mine []time.Duration
						for c, start := 0, time.Now(); time.Since(start) < lasts; c++ {
							before := time.Now()
							if _, err := l.Allow(b.Context(), fmt.Sprint(key, c)); err != nil {
								b.Error(err)
							}
							mine = append(mine, time.Since(before))
							time.Sleep(pause)
						}
						mu.Lock()
						defer mu.Unlock()
						took = append(took, mine...)
					})
				}
				running.Wait()
				f.off(b, e)
				slices.Sort(took)
				median, p99, worst := took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
				b.ReportMetric(float64(median.Microseconds()), "median-µs")
				b.ReportMetric(float64(p99.Microseconds()), "p99-µs")
				b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
				table = append(table, fmt.Sprintf("| %s | %v | %v | %v | %d of %d |", f.name, median.Round(100*time.Nanosecond),
					p99.Round(time.Microsecond), worst.Round(100*time.Microsecond), watch.count(core.EventOutage), len(took)))
			}
		})
	}
	fmt.Println("| fault | median | 99 % | worst | calls that failed |\n|---|---|---|---|---|")
	for _, row := range table {
		fmt.Println(row)
	}
}
