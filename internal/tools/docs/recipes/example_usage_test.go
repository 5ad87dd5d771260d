package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

var month = core.FixedWindow(core.PerMonth(10_000), core.In("Europe/Berlin"), core.LimitName("contract"))

var errNotKnown = errors.New("the usage is not known at the moment")

// usage returns how much a customer has used this month, and when the next month begins.
func usage(ctx context.Context, lim *core.Limiter, customer string) (string, error) {
	res, err := lim.Peek(ctx, customer)
	switch {
	case errors.Is(err, core.ErrUnavailable):
		return "", errNotKnown
	case err != nil:
		return "", err
	case res.Source == core.SourceNone || res.Source == core.SourceFallback: // the count is in Redis, which did not answer
		return "", errNotKnown
	}
	_, resets, _ := month.WindowAt(res.At)
	return fmt.Sprintf("%d of %d used, resets on %s", res.Limit-res.Remaining, res.Limit, resets.Format("2 January at 15:04")), nil
}

func Example_usage() {
	ctx := context.Background()
	zone, _ := time.LoadLocation("Europe/Berlin")
	now := time.Date(2026, 11, 12, 9, 0, 0, 0, zone)
	lim := core.MustNewMemory("api", month, core.Clock(func() time.Time { return now }))
	fmt.Println(usage(ctx, lim, "customer:42"))
	_, _ = lim.AllowN(ctx, "customer:42", 7312)
	fmt.Println(usage(ctx, lim, "customer:42"))
	now = time.Date(2026, 12, 1, 0, 0, 0, 0, zone)
	fmt.Println(usage(ctx, lim, "customer:42"))
	// Output:
	// 0 of 10000 used, resets on 1 December at 00:00 <nil>
	// 7312 of 10000 used, resets on 1 December at 00:00 <nil>
	// 0 of 10000 used, resets on 1 January at 00:00 <nil>
}

// In an outage, a process knows only its own counts, or none. With every policy, usage must return an error instead of
// showing that nothing is used.
func Example_usageInOutage() {
	ctx := context.Background()
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer func() { _ = away.Close() }()

	for _, policy := range []core.Option{core.FailLocal(), core.FailOpen(), core.FailClosed()} {
		lim := core.MustNew(away, "api", month, policy)
		_, err := usage(ctx, lim, "customer:42")
		fmt.Println(err)
		_ = lim.Close()
	}
	// Output:
	// the usage is not known at the moment
	// the usage is not known at the moment
	// the usage is not known at the moment
}
