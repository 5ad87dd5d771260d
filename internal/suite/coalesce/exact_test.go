package coalesce

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

// driven returns a backend whose scripts use a clock that the test moves.
func driven(client redis.UniversalClient, nodes int) *backend {
	d := conformance.NewDriven(nil)
	s := newBackend(client, nodes) // first, so that the gate sees the commands before the driven clock changes them
	s.advance, s.now = d.Advance, d.Now
	client.AddHook(d)
	return s
}

// TestExact checks that decisions of one batch have, in every field, the same results as the same decisions made one by
// one: in the order in which they came, but with the ordinary decisions after all other calls. It uses many keys, the same
// key many times, random costs, Peeks, charges that are taken back, denials, and costs that can never be admitted. Package
// conformance compares decisions made one by one with the exact model.
func TestExact(t *testing.T) {
	t.Parallel()
	onBoth(t, driven, func(t *testing.T, s *backend) { exact(t, s, 8) })
	t.Run("Miniredis", func(t *testing.T) {
		t.Parallel()
		addr, now, advance := mini.Driven(t)
		client := redisclient.New(t, &redis.Options{Addr: addr})
		defer func() { _ = client.Close() }()
		s := newBackend(client, 1)
		s.now, s.advance = now, advance
		exact(t, s, 4) // fewer, because it runs the same scripts as Redis
	})
}

func exact(t *testing.T, s *backend, seeds uint64) {
	for seed := range seeds {
		for _, v := range limits.All() {
			t.Run(fmt.Sprintf("%s/seed=%d", v.Name, seed), func(t *testing.T) { compare(t, s, seed, v) })
		}
		t.Run(fmt.Sprintf("several/seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			all := limits.All()
			var several []limits.Variant
			for range 2 + r.IntN(3) {
				several = append(several, all[r.IntN(len(all))])
			}
			compare(t, s, seed, several...)
		})
	}
}

// compare makes random calls in batches, and the same calls one by one on keys with another prefix, and compares the
// results.
func compare(t *testing.T, s *backend, seed uint64, variants ...limits.Variant) {
	r := rand.New(rand.NewPCG(seed, 1))
	var opts []core.Option
	var others []core.Limit // limits of other numbers, for some of the decisions
	var most, period int64
	slots := slices.ContainsFunc(variants, func(v limits.Variant) bool { return v.Kind.Slots })
	for i, v := range variants {
		most, period = 1+r.Int64N(60), 2000+r.Int64N(60_000_000)
		rate := core.Per(most, time.Duration(period)*time.Microsecond)
		opts = append(opts, v.With(rate, limits.Settings{Burst: most, Name: fmt.Sprint("limit", i)}))
		other := v.With(core.Per(most+2, rate.Period()), limits.Settings{Burst: most + 2, Name: fmt.Sprint("limit", i)})
		others = append(others, other)
	}
	if seed%2 == 1 {
		opts = append(opts, core.Ban(time.Duration(period)*time.Microsecond/2, time.Duration(period)*time.Microsecond))
	}
	name := t.Name()[len("TestExact/"):]
	name = fmt.Sprintf("%x", name)[max(0, 2*len(name)-60):]
	lim := s.limiter(t, name, opts...)
	single := s.limiter(t, name, append(opts, core.Prefix("single"), core.MaxBatch(1))...)
	var leaving [][2]*permits.Any // charges to cancel: one made in a batch, and the same one made alone
	for range 6 {
		requests, alike := make([]request, 1+r.IntN(24)), r.IntN(3) == 0 // alike: all decisions have the same cost, and some may be Peeks
		for i := range requests {
			requests[i] = request{key: fmt.Sprint("key", r.IntN(4)), n: 1, peek: r.IntN(6) == 0 && (!alike || seed%4 != 1)}
			if r.IntN(3) > 0 && !alike {
				requests[i].n = r.Int64N(min(most+3, 100))
			}
		}
		c, acquired := s.caller(t, lim), make([]bool, len(requests))
		of := func(i int, lim *core.Limiter) call {
			if seed%4 == 3 && i%3 == 1 {
				var err error
				if lim, err = lim.With(others...); err != nil {
					t.Fatal(err)
				}
			}
			if i%5 == 2 { // the denials of this limiter do not ban
				lim = inside.Core.WithoutBans(lim)
			}
			if acquired[i] {
				return requests[i].acquire(lim)
			}
			return requests[i].of(lim)
		}
		for i, q := range requests {
			acquired[i] = !q.peek && r.IntN(4) == 0
			c.enqueue(fmt.Sprintf("%+v", q), of(i, lim))
		}
		for _, r := range leaving {
			c.settle(r[0], 0)
		}
		cancel := func() {
			for _, r := range leaving {
				check.OK(t, r[1].Cancel(t.Context()))
			}
		}
		answers := c.send()[:len(requests)]
		if !slots { // the script cancels before it makes ordinary decisions
			cancel()
		}
		var next [][2]*permits.Any
		for i, got := range answers {
			want, err := of(i, single)(t.Context())
			if got.err != nil || err != nil || view(got.Result) != view(want.Result) {
				t.Fatalf("%+v, number %d of %+v:\ngot  %s, %v\nwant %s, %v", requests[i], i+1, requests, view(got.Result), got.err, view(want.Result), err)
			}
			switch {
			case !acquired[i]:
			case i%2 == 0 && want.Allowed && requests[i].n > 0:
				next = append(next, [2]*permits.Any{got.held, want})
			default: // canceled once all decisions have been made
				t.Cleanup(func() { takenBack(t, lim, single, requests[i].key, got.held, want) })
			}
		}
		if slots {
			cancel()
		}
		leaving = next
		s.advance(time.Duration(r.Int64N(period)) * time.Microsecond / time.Duration(1+r.IntN(8)))
	}
}

// takenBack cancels the charge of a call made in a batch and of the same call made alone, and compares their keys.
func takenBack(t *testing.T, lim, single *core.Limiter, key string, got, want *permits.Any) {
	t.Helper()
	ctx := context.Background()
	for _, r := range []*permits.Any{got, want} {
		check.OK(t, r.Cancel(ctx))
	}
	a, errA := lim.Peek(ctx, key)
	b, errB := single.Peek(ctx, key)
	if view(a) != view(b) || errA != nil || errB != nil {
		t.Errorf("after a Cancel of %s:\ngot  %s, %v\nwant %s, %v", view(got.Result), view(a), errA, view(b), errB)
	}
}

// view returns everything that a user can read in a Result.
func view(r core.Result) string {
	all := slices.Collect(r.All())
	var text strings.Builder
	for _, e := range append([]core.Result{r}, all...) {
		fmt.Fprintf(&text, "{%s allowed %v banned %v limit %d remaining %d retry %v reset %v delay %v window %v at %d source %v}",
			e.LimitName, e.Allowed, e.Banned, e.Limit, e.Remaining, e.RetryAfter, e.ResetAfter, e.Delay, e.Window, e.At.UnixMicro(), e.Source)
	}
	return text.String()
}
