package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A figure is the number of instructions that a case takes.
type figure struct {
	Name         string `json:"name"`
	Instructions int64  `json:"instructions"`
}

const (
	rounds = 10 // decisions for each key while instructions are counted
	alone  = 20 // number of keys in a case whose scripts make one decision each
	hour   = 3600 * 1_000_000
)

// A price is one case: how the limits decide, and how many decisions one script makes.
type price struct {
	name    string
	limits  []algorithm.Limit
	form    algorithm.Form
	batch   int                  // the number of keys of a script
	held    bool                 // each key also has units on hold
	first   algorithm.Operation  // the call that is measured
	second  *algorithm.Operation // the call that ends the reservation of the first
	command *redis.Script
}

// prices returns all cases.
func prices() (all []*price) {
	charge := algorithm.Operation{Op: algorithm.OpCharge, N: 1}
	reserve := algorithm.Operation{Op: algorithm.OpReserve, N: 1}
	settle := &algorithm.Operation{Op: algorithm.OpSettle, N: 1, Actual: 1}
	refund := &algorithm.Operation{Op: algorithm.OpRefund, N: 1}
	release := &algorithm.Operation{Op: algorithm.OpRelease, N: 1}
	add := func(p price) { all = append(all, &p) }
	kinds := []*algorithm.Kind{
		algorithm.TokenBucket, algorithm.FixedWindow, algorithm.Calendar, algorithm.SlidingWindowCounter, algorithm.SlidingWindowLog,
		algorithm.LeakyBucket,
	}
	for _, k := range kinds {
		one := []algorithm.Limit{member(k, 1000)}
		add(price{name: k.Name + ", alone", limits: one, batch: 1, first: charge})
		add(price{name: k.Name + ", denied", limits: []algorithm.Limit{member(k, 1)}, batch: 1, first: charge})
		add(price{name: k.Name + ", batch of 64", limits: one, batch: 64, first: charge})
		add(price{name: k.Name + ", acquire and cancel", limits: one, batch: 1, first: charge, second: refund})
		if k.Delays {
			continue
		}
		add(price{name: k.Name + ", held, alone", limits: one, batch: 1, held: true, first: charge})
		add(price{name: k.Name + ", held, batch of 64", limits: one, batch: 64, held: true, first: charge})
		add(price{name: k.Name + ", reserve and settle", limits: one, batch: 1, first: reserve, second: settle})
	}
	slots := []algorithm.Limit{member(algorithm.InFlight, 1000)}
	add(price{name: "in_flight, acquire and release", limits: slots, batch: 1, first: charge, second: release})

	three := []algorithm.Limit{member(algorithm.TokenBucket, 1000), member(algorithm.SlidingWindowLog, 1000), member(algorithm.FixedWindow, 1000)}
	add(price{name: "three limits, alone", limits: three, batch: 1, first: charge})
	add(price{name: "three limits, batch of 20", limits: three, batch: 20, first: charge})
	add(price{name: "three limits, held, alone", limits: three, batch: 1, held: true, first: charge})
	add(price{name: "three limits, held, batch of 20", limits: three, batch: 20, held: true, first: charge})
	add(price{name: "three limits, reserve and settle", limits: three, batch: 1, first: reserve, second: settle})

	bucket, bans := three[:1], []algorithm.Group{{Limits: 1, Bans: algorithm.Bans{hour, 2 * hour}}}
	add(price{name: "other numbers, batch of 64", limits: bucket, form: algorithm.Form{PerCallConstants: true}, batch: 64, first: charge})
	add(price{name: "on a cluster, batch of 64", limits: bucket, form: algorithm.Form{Undeclared: true}, batch: 64, first: charge})
	add(price{name: "with bans, alone", limits: bucket, form: algorithm.Form{Groups: bans}, batch: 1, first: charge})
	add(price{name: "with bans, batch of 64", limits: bucket, form: algorithm.Form{Groups: bans}, batch: 64, first: charge})
	two := algorithm.Form{Groups: []algorithm.Group{{Limits: 1}, {Limits: 1}}}
	add(price{name: "two limiters, alone", limits: []algorithm.Limit{three[0], three[2]}, form: two, batch: 1, first: charge})
	return all
}

func member(k *algorithm.Kind, count int64) algorithm.Limit {
	m := algorithm.Limit{Kind: k, HoldDuration: hour}
	m.Evaluator = k.New(algorithm.Numbers{Count: count, Period: 10 * hour, Burst: count})
	return m
}

func measure(pattern *regexp.Regexp) ([]figure, error) {
	ctx := context.Background()
	server, err := start(ctx)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	var all []figure
	for _, p := range prices() {
		if !pattern.MatchString(p.name) {
			continue
		}
		n, err := p.measure(ctx, server)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		all = append(all, figure{p.name, n})
	}
	return all, nil
}

// measure returns the instructions of one decision, or of a pair of calls.
func (p *price) measure(ctx context.Context, server *counted) (int64, error) {
	if err := server.FlushAll(ctx).Err(); err != nil {
		return 0, err
	}
	p.command = redis.NewScript(algorithm.Script(p.limits, p.form))
	if err := p.command.Load(ctx, server).Err(); err != nil {
		return 0, err
	}
	scripts := max(1, alone/p.batch)
	if p.held {
		for range 2 { // hold as many units as a busy key has
			if _, err := p.run(ctx, server, scripts, algorithm.Operation{Op: algorithm.OpReserve, N: 1}, nil); err != nil {
				return 0, err
			}
		}
	}
	for round := range 2 + rounds {
		if round == 2 { // by now, caches are filled, and the key has the state of a key in use
			if _, err := server.since(); err != nil {
				return 0, err
			}
		}
		handles, err := p.run(ctx, server, scripts, p.first, nil)
		if err == nil && p.second != nil {
			_, err = p.run(ctx, server, scripts, *p.second, handles)
		}
		if err != nil {
			return 0, err
		}
	}
	counts, err := server.since()
	return counts / int64(rounds*scripts*p.batch), err
}

// run makes one call for each key, in the given number of scripts. It returns, for each script, the handles of the
// units that were charged or held.
func (p *price) run(
	ctx context.Context, server *counted, scripts int, call algorithm.Operation, ended [][]algorithm.Handle,
) ([][]algorithm.Handle, error) {
	pipe := server.Pipeline()
	var replies []*redis.Cmd
	for i := range scripts {
		if ended != nil {
			call.Handles = ended[i]
		}
		keys, args := p.arguments(i, call)
		replies = append(replies, p.command.EvalSha(ctx, pipe, keys, args...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var handles [][]algorithm.Handle
	for _, reply := range replies {
		numbers, err := reply.Int64Slice()
		if err != nil {
			return nil, err
		}
		decoded := algorithm.Operation{Op: call.Op, N: call.N, Actual: call.Actual, HoldID: call.HoldID, Handles: make([]algorithm.Handle, len(p.limits))}
		answers := make([]algorithm.Answer, len(p.limits))
		first, _, _, err := algorithm.SplitReply(numbers, len(p.limits), p.bans())
		if err != nil {
			return nil, err
		}
		if err := algorithm.DecodeReply(first, decoded, p.limits, answers); err != nil {
			return nil, err
		}
		handles = append(handles, decoded.Handles)
	}
	return handles, nil
}

func (p *price) bans() int {
	n := 0
	for _, g := range p.form.Groups {
		if g.Bans != nil {
			n++
		}
	}
	return n
}

// arguments returns the keys and the arguments of script number i.
func (p *price) arguments(i int, call algorithm.Operation) (keys []string, args []any) {
	for b := range p.batch {
		for j := range len(p.limits) + p.bans() {
			keys = append(keys, fmt.Sprintf("limits:{client-%04d-of-%04d}:limit-%02d", b, i, j))
		}
	}
	var constants, costs, holds []any
	slots := false
	for _, m := range p.limits {
		given, _, _ := m.ConstantsAt(time.Now().UnixMicro())
		constants, costs = append(constants, given...), m.Cost(costs, call.N)
		holds, slots = append(holds, strconv.FormatInt(m.HoldDuration, 10)), slots || m.Slots
	}
	one := func(args []any) []any {
		if call.Op <= algorithm.OpCharge && !slots {
			args = append(append(args, string(call.Op)), costs...)
		} else {
			args = call.Append(args, holds)
		}
		if p.bans() > 0 {
			args = append(args, "1")
		}
		return args
	}
	if p.form.Undeclared {
		for _, key := range keys {
			args = append(args, key)
		}
	}
	if p.form.PerCallConstants {
		for range p.batch {
			args = append(one(args), constants...)
		}
	} else {
		args = one(append(args, constants...))
	}
	if p.form.Undeclared {
		return nil, append(args, len(keys))
	}
	return keys, args
}
