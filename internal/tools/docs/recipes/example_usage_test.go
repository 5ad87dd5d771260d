package recipes_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/core"
)

var month = core.FixedWindow(core.PerMonth(10_000), core.In("Europe/Berlin"), core.LimitName("contract"))

// usage says how much of a customer's month is used, and until when that counts.
func usage(ctx context.Context, lim *core.Limiter, customer string, zone *time.Location) (string, error) {
	res, err := lim.Peek(ctx, customer)
	if err != nil {
		return "", err
	}
	if res.ResetAfter == 0 {
		return fmt.Sprintf("0 of %d", res.Limit), nil
	}
	ends := res.At.Add(res.ResetAfter).In(zone)
	return fmt.Sprintf("%d of %d until %s", res.Limit-res.Remaining, res.Limit, ends.Format("2 January")), nil
}

func Example_usage() {
	ctx := context.Background()
	zone, _ := time.LoadLocation("Europe/Berlin")
	now := time.Date(2026, 11, 12, 9, 0, 0, 0, zone)
	lim := core.MustNewMemory("api", month, core.Clock(func() time.Time { return now }))
	fmt.Println(usage(ctx, lim, "customer:42", zone))
	_, _ = lim.AllowN(ctx, "customer:42", 7312)
	fmt.Println(usage(ctx, lim, "customer:42", zone))
	now = time.Date(2026, 12, 1, 0, 0, 0, 0, zone)
	fmt.Println(usage(ctx, lim, "customer:42", zone))
	// Output:
	// 0 of 10000 <nil>
	// 7312 of 10000 until 1 December <nil>
	// 0 of 10000 <nil>
}
