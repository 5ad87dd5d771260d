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

// driven is a backend whose scripts go by a clock that a test moves.
func driven(client redis.UniversalClient, nodes int) *backend {
	d := conformance.NewDriven(nil)
	s := newBackend(client, nodes) // first: it sees what was asked for
	s.advance, s.now = d.Advance, d.Now
	client.AddHook(d)
	return s
}

// Decisions of one batch answer, in every field, what they do one by one in
// the order in which they came, those that are plain after all other calls: many keys and the same many times, costs, peeks,
// charges that are taken back, what is denied and what never could be admitted. The others are held
// to the exact model, by package conformance.
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
		exact(t, s, 4) // the scripts of Redis
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

func compare(t *testing.T, s *backend, seed uint64, variants ...limits.Variant) {
	r := rand.New(rand.NewPCG(seed, 1))
	var opts []core.Option
	var others []core.Limit // of other numbers, for some of the decisions
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
	var leaving [][2]*permits.Any // in a batch, and by itself
	for range 6 {
		requests, alike := make([]request, 1+r.IntN(24)), r.IntN(3) == 0 // all of one cost, though some only look
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
			if i%5 == 2 { // its denials ban nobody
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
		if !slots { // the script makes these before plain decisions
			cancel()
		}
		var next [][2]*permits.Any
		for i, got := range answers {
			want, err := of(i, single)(t.Context())
			if got.err != nil || err != nil || view(got.Result) != view(want.Result) {
				t.Fatalf("%+v, the %d. of %+v:\ngot  %s, %v\nwant %s, %v", requests[i], i+1, requests, view(got.Result), got.err, view(want.Result), err)
			}
			switch {
			case !acquired[i]:
			case i%2 == 0 && want.Allowed && requests[i].n > 0:
				next = append(next, [2]*permits.Any{got.held, want})
			default: // taken back once all decisions are made
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

// takenBack cancels the charge of a call in a batch, and of the same call made alone.
func takenBack(t *testing.T, lim, single *core.Limiter, key string, got, want *permits.Any) {
	t.Helper()
	ctx := context.Background()
	for _, r := range []*permits.Any{got, want} {
		check.OK(t, r.Cancel(ctx))
	}
	a, errA := lim.Peek(ctx, key)
	b, errB := single.Peek(ctx, key)
	if view(a) != view(b) || errA != nil || errB != nil {
		t.Errorf("after %s was taken back:\ngot  %s, %v\nwant %s, %v", view(got.Result), view(a), errA, view(b), errB)
	}
}

// view is everything that a user can read in a Result.
func view(r core.Result) string {
	all := slices.Collect(r.All())
	var text strings.Builder
	for _, e := range append([]core.Result{r}, all...) {
		fmt.Fprintf(&text, "{%s allowed %v banned %v limit %d remaining %d retry %v reset %v delay %v window %v at %d source %v}",
			e.LimitName, e.Allowed, e.Banned, e.Limit, e.Remaining, e.RetryAfter, e.ResetAfter, e.Delay, e.Window, e.At.UnixMicro(), e.Source)
	}
	return text.String()
}
