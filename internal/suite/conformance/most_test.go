package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestMost makes Limiters of the largest number of limits, of each algorithm and of all algorithms together, with bans. No
// script is too large for a server, alone or in a batch, and every operation changes all limits or none.
func TestMost(t *testing.T) {
	t.Parallel()
	clients := map[string]redis.UniversalClient{
		"Redis": redistest.Server(t).Client(t), "Cluster": redistest.ClusterClient(t, redistest.Cluster(t)),
		"Miniredis": redisclient.New(t, &redis.Options{Addr: mini.Redis(t).Addr(), ReadTimeout: time.Minute}),
	}
	t.Cleanup(func() { _ = clients["Miniredis"].Close() })
	every := append(limits.All(), limits.Slots()...)
	sets := map[string][]limits.Variant{"all": every, "all_charged": limits.All()}
	for _, v := range every {
		sets[v.Name] = []limits.Variant{v}
	}
	for place, client := range clients {
		for name, variants := range sets {
			t.Run(place+"/"+name, func(t *testing.T) { mostOf(t, client, name, variants) })
		}
	}
}

func mostOf(t *testing.T, client redis.UniversalClient, name string, variants []limits.Variant) {
	t.Helper()
	made := func(n int64) (all []core.Limit) {
		for i := range algorithm.MaxLimits {
			v := variants[i%len(variants)]
			all = append(all, v.With(core.Per(n, 400*24*time.Hour), limits.Settings{Burst: n, Name: fmt.Sprint("limit", i)}))
		}
		return all
	}
	var bans []time.Duration
	if slices.ContainsFunc(variants, func(v limits.Variant) bool { return !v.Kind.Slots }) {
		bans = append(bans, time.Hour)
	}
	options := []core.Option{core.Ban(bans...), core.FailClosed(), core.Timeout(time.Minute), core.DenyCache(0)}
	for _, l := range made(100) {
		options = append(options, l)
	}
	lim := core.MustNew(client, name, options...)
	t.Cleanup(func() { _ = lim.Close() })
	other, err := lim.With(made(90)...)
	check.Need(t, err)
	everyOperation(t, lim, "alone")
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() { everyOperation(t, []*core.Limiter{lim, other}[i%2], fmt.Sprint("k", i)) })
	}
	all.Wait()
}

// everyOperation makes each operation on the key, and checks after each how many units every limit has left.
func everyOperation(t *testing.T, lim *core.Limiter, key string) {
	t.Helper()
	ctx := t.Context()
	var r *permits.Any
	take := func(n int64, take func(*core.Limiter, context.Context, string, int64) (*permits.Any, error)) func() error {
		return func() (err error) {
			if r, err = take(lim, ctx, key, n); err == nil && !r.Allowed {
				err = fmt.Errorf("%+v", r.Result)
			}
			return err
		}
	}
	for i, op := range []struct {
		do           func() error
		units, slots int64 // how many are used afterwards
	}{
		{take(2, permits.Acquire), 2, 2},
		{func() error { return r.Release(ctx) }, 2, 0},
		{take(3, permits.Reserve), 5, 3},
		{func() error { return r.Cancel(ctx) }, 2, 0},
		{take(4, permits.Acquire), 6, 4},
		{func() error { return r.Cancel(ctx) }, 2, 0},
		{func() error { return errors.Join(lim.Block(ctx, key, time.Hour), lim.Unblock(ctx, key)) }, 2, 0},
		{func() error { return lim.Reset(ctx, key) }, 0, 0},
	} {
		if err := op.do(); err != nil {
			t.Errorf("key %s, operation %d: got error %v, want it to succeed", key, i, err)
			return
		}
		for j, left := range limits.Left(t, lim, key) {
			l := lim.Limits()[j]
			used := op.units
			if l.Algorithm() == algorithm.InFlight.Name {
				used = op.slots
			}
			if got := l.Capacity() - left; got != used {
				t.Errorf("key %s, operation %d: %d units of %v are used, want %d", key, i, got, l, used)
			}
		}
	}
}
