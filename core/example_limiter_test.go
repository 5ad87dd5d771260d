package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// newLimiter stands for a Limiter made with New: all methods are the same.
func newLimiter(opts ...core.Option) *core.Limiter {
	lim, err := core.NewMemory("example", opts...)
	if err != nil {
		log.Fatal(err)
	}
	return lim
}

// A Limiter counts each key on its own.
func ExampleLimiter() {
	lim := newLimiter(core.FixedWindow(core.PerHour(1)))

	for _, key := range []string{"user:alice", "user:alice", "user:bob"} {
		res, _ := lim.Allow(context.Background(), key)
		fmt.Println(key, res.Allowed)
	}
	// Output:
	// user:alice true
	// user:alice false
	// user:bob true
}

// A denial is a Result. An error is a mistake in the call, or says that there is no
// decision.
func ExampleLimiter_Allow() {
	lim := newLimiter(core.FixedWindow(core.PerHour(1)))

	for range 2 {
		switch res, err := lim.Allow(context.Background(), "user:alice"); {
		case err != nil:
			log.Print(err)
		case res.Allowed:
			fmt.Println("go on,", res.Remaining, "left")
		default:
			fmt.Println("come back in", res.RetryAfter.Round(time.Hour))
		}
	}
	// Output:
	// go on, 0 left
	// come back in 1h0m0s
}

// A request may cost more than one unit.
func ExampleLimiter_AllowN() {
	lim := newLimiter(core.FixedWindow(core.PerHour(100)))

	res, _ := lim.AllowN(context.Background(), "user:alice", 60)
	fmt.Println(res.Allowed, res.Remaining)
	res, _ = lim.AllowN(context.Background(), "user:alice", 60)
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter > 59*time.Minute)
	res, _ = lim.AllowN(context.Background(), "user:alice", 101)
	fmt.Println(res.Allowed, res.RetryAfter == core.Never)
	// Output:
	// true 40
	// false 40 true
	// false true
}

// What a job costs is known when it is done. Until then an estimate is held.
func ExampleLimiter_Reserve() {
	lim := newLimiter(core.FixedWindow(core.PerHour(1000)))

	res, err := lim.Reserve(context.Background(), "user:alice", 500)
	if err != nil || !res.Allowed {
		log.Fatal("come back later")
	}
	others, _ := lim.Peek(context.Background(), "user:alice")
	fmt.Println("while it runs:", others.Remaining)

	if err := lim.Settle(context.Background(), res, 120); err != nil {
		log.Print(err)
	}
	others, _ = lim.Peek(context.Background(), "user:alice")
	fmt.Println("then:", others.Remaining)
	// Output:
	// while it runs: 500
	// then: 880
}

// A job that costs more than was reserved, and than the limit, leaves a debt.
func ExampleLimiter_Settle() {
	lim := newLimiter(core.TokenBucket(core.PerHour(1000)))

	res, _ := lim.Reserve(context.Background(), "user:alice", 500)
	_ = lim.Settle(context.Background(), res, 7000)

	res, _ = lim.Reserve(context.Background(), "user:alice", 500)
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter.Round(time.Minute)) // in which 6500 units drain
	// Output: false 0 6h30m0s
}

// Work that takes longer than the hold keeps its units from being charged as an estimate.
func ExampleLimiter_KeepHeld() {
	lim := newLimiter(core.FixedWindow(core.PerHour(1000)), core.Hold(time.Second))
	defer func() { _ = lim.Close() }()

	res, _ := lim.Reserve(context.Background(), "user:alice", 500)
	lim.KeepHeld(res)
	// ... work for an hour
	_ = lim.Settle(context.Background(), res, 120)
}

// At most three exports of a customer at a time, and a hundred a day.
func ExampleLimiter_Release() {
	lim := newLimiter(core.InFlight(3), core.FixedWindow(core.PerDay(100)))

	export := func(ctx context.Context, work func(context.Context)) {
		res, err := lim.Allow(ctx, "customer:acme")
		if err != nil || !res.Allowed {
			fmt.Println("denied by", res.Name)
			return
		}
		defer func() { _ = lim.Release(context.WithoutCancel(ctx), res) }() // ctx may have ended then
		working, cancel := lim.SlotContext(ctx, res)                        // ends if the slot is lost
		defer cancel()
		work(working)
	}

	ctx := context.Background()
	export(ctx, func(ctx context.Context) {
		export(ctx, func(ctx context.Context) {
			export(ctx, func(ctx context.Context) {
				export(ctx, func(context.Context) {})
			})
		})
	})
	export(ctx, func(context.Context) { fmt.Println("admitted") })
	// Output:
	// denied by inflight
	// admitted
}

// Work ends when its slot is lost, because others may do it then.
func ExampleLimiter_SlotContext() {
	lim := newLimiter(core.InFlight(1))

	ctx := context.Background()
	res, err := lim.Allow(ctx, "report")
	if err != nil || !res.Allowed {
		log.Fatal("it is being made")
	}
	defer func() { _ = lim.Release(ctx, res) }()

	work, cancel := lim.SlotContext(ctx, res)
	defer cancel()
	select {
	case <-work.Done():
		if errors.Is(context.Cause(work), core.ErrSlotLost) {
			log.Print("Redis did not answer for too long")
		}
	default: // the work is done
		fmt.Println(work.Err())
	}
	// Output: <nil>
}

// A Result with slots is to be released.
func ExampleResult_HasSlots() {
	lim := newLimiter(core.InFlight(1))

	first, _ := lim.Allow(context.Background(), "report")
	second, _ := lim.Allow(context.Background(), "report")
	fmt.Println(first.HasSlots(), second.HasSlots())
	_ = lim.Release(context.Background(), first)
	// Output: true false
}

// What a program gets wrong is an error.
func ExampleLimiter_AllowN_mistakes() {
	lim := newLimiter(core.FixedWindow(core.PerHour(100)))

	_, err := lim.AllowN(context.Background(), "user:alice", -1)
	fmt.Println(errors.Is(err, core.ErrInvalidCost))
	_, err = lim.AllowN(context.Background(), "", 1)
	fmt.Println(errors.Is(err, core.ErrInvalidKey))
	// Output:
	// true
	// true
}

// Peek shows how a user stands without charging anything, as a status page does.
func ExampleLimiter_Peek() {
	lim := newLimiter(core.FixedWindow(core.PerHour(100)))

	_, _ = lim.AllowN(context.Background(), "user:alice", 60)
	res, _ := lim.Peek(context.Background(), "user:alice")
	fmt.Printf("%d of %d left\n", res.Remaining, res.Limit)
	// Output: 40 of 100 left
}

// Wait paces a worker: here two go at once, and then one every 10 ms.
func ExampleLimiter_Wait() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(100), core.Burst(2)))

	for range 5 {
		if _, err := lim.Wait(context.Background(), "crawler"); err != nil {
			log.Fatal(err)
		}
		fmt.Println("fetch a page")
	}
	// Output:
	// fetch a page
	// fetch a page
	// fetch a page
	// fetch a page
	// fetch a page
}

// Requests of different sizes are paced by their size. What can never be admitted
// in time does not wait at all.
func ExampleLimiter_WaitN() {
	lim := newLimiter(core.TokenBucket(core.PerMinute(60), core.Burst(100)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	res, err := lim.WaitN(ctx, "upload", 100)
	fmt.Println(res.Remaining, err)
	_, err = lim.WaitN(ctx, "upload", 50) // in 50 s
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	_, err = lim.WaitN(ctx, "upload", 101)
	fmt.Println(errors.Is(err, core.ErrNeverAdmitted))
	// Output:
	// 0 <nil>
	// true
	// true
}

// Refund gives back what was charged for work that was not done.
func ExampleLimiter_Refund() {
	lim := newLimiter(core.FixedWindow(core.PerDay(10)))
	ctx := context.Background()

	res, _ := lim.AllowN(ctx, "user:alice", 4)
	if err := lim.Refund(ctx, res); err != nil {
		log.Fatal(err)
	}
	res, _ = lim.Peek(ctx, "user:alice")
	fmt.Println(res.Remaining)
	// Output: 10
}

// Only the Limiter that charged a Result can refund it, and once.
func ExampleLimiter_Refund_invalid() {
	lim, other := newLimiter(core.FixedWindow(core.PerDay(10))), newLimiter(core.FixedWindow(core.PerDay(10)))
	ctx := context.Background()

	res, _ := lim.AllowN(ctx, "user:alice", 4)
	fmt.Println(errors.Is(other.Refund(ctx, res), core.ErrInvalidResult))
	fmt.Println(lim.Refund(ctx, res), lim.Refund(ctx, res))
	// Output:
	// true
	// <nil> <nil>
}

// Reset forgives, as a support desk does.
func ExampleLimiter_Reset() {
	lim := newLimiter(core.FixedWindow(core.PerDay(10)))
	ctx := context.Background()

	_, _ = lim.AllowN(ctx, "user:alice", 10)
	if err := lim.Reset(ctx, "user:alice"); err != nil {
		log.Fatal(err)
	}
	res, _ := lim.Allow(ctx, "user:alice")
	fmt.Println(res.Allowed, res.Remaining)
	// Output: true 9
}

func ExampleLimiter_Limits() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(10)), core.FixedWindow(core.PerDay(5000), core.Name("daily")))

	for _, limit := range lim.Limits() {
		fmt.Printf("%s: %d in %v\n", limit.Name(), limit.Rate().Count(), limit.Rate().Period())
	}
	// Output:
	// token-1s: 10 in 1s
	// daily: 5000 in 24h0m0s
}

func ExampleLimiter_Name() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(10)))
	fmt.Println(lim.Name())
	// Output: example
}

// Close does not close the Redis client.
func ExampleLimiter_Close() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(10)))
	defer func() { _ = lim.Close() }()

	res, _ := lim.Allow(context.Background(), "user:alice")
	fmt.Println(res.Allowed)
	// Output: true
}

func ExampleResult() {
	lim := newLimiter(core.TokenBucket(core.PerMinute(60), core.Burst(5)))

	res, _ := lim.AllowN(context.Background(), "user:alice", 5)
	fmt.Println(res.Allowed, res.Remaining, "of", res.Limit, "left, all of it in", res.ResetAfter)
	res, _ = lim.AllowN(context.Background(), "user:alice", 6)
	fmt.Println(res.Allowed, res.RetryAfter == core.Never)
	fmt.Println(res.Name, res.Source)
	// Output:
	// true 0 of 5 left, all of it in 5s
	// false true
	// token-1m memory
}

// All shows each of several limits.
func ExampleResult_All() {
	lim := newLimiter(core.TokenBucket(core.PerSecond(10)), core.FixedWindow(core.PerDay(5000)))

	res, _ := lim.Allow(context.Background(), "user:alice")
	fmt.Printf("the tightest: %s\n", res.Name)
	for each := range res.All() {
		fmt.Printf("%s: %d of %d left\n", each.Name, each.Remaining, each.Limit)
	}
	// Output:
	// the tightest: token-1s
	// token-1s: 9 of 10 left
	// fixed-1d: 4999 of 5000 left
}

// Two limiters decide about one request: by address and by user, say. The tighter
// Result is the one to show.
func ExampleResult_Tighter() {
	byIP := newLimiter(core.FixedWindow(core.PerHour(100), core.Name("address")))
	byUser := newLimiter(core.FixedWindow(core.PerHour(10), core.Name("user")))

	shown, _ := byIP.Allow(context.Background(), "ip:192.0.2.1")
	if res, _ := byUser.Allow(context.Background(), "user:alice"); res.Tighter(shown) {
		shown = res
	}
	fmt.Println(shown.Name, shown.Remaining)
	// Output: user 9
}

// Customers have limits of their own, which may change while the program runs.
func ExampleLimiter_With() {
	lim := newLimiter(core.TokenBucket(core.PerMinute(60)))
	perMinute := map[string]int64{"acme": 250, "initech": 1000} // read from a database

	for _, customer := range []string{"acme", "initech"} {
		limits, err := lim.With(core.TokenBucket(core.PerMinute(perMinute[customer])))
		if err != nil {
			log.Fatal(err) // such as a rate of 0
		}
		res, _ := limits.Allow(context.Background(), "customer:"+customer)
		fmt.Println(customer, res.Remaining, "of", res.Limit)
	}
	// Output:
	// acme 249 of 250
	// initech 999 of 1000
}

// A hot key is decided from units that were reserved before, without asking Redis.
func ExampleLease() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim, err := core.New(rdb, "api", core.TokenBucket(core.PerSecond(50_000)), core.Lease(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lim.Close() }() // gives back what is not spent

	res, err := lim.Allow(context.Background(), "tenant:acme")
	fmt.Println(res.Allowed, res.Source, err) // from the ninth request within 100 ms on: true lease <nil>
}
