package main

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// clientHeader is the header that names the client of a request.
const clientHeader = "X-Client"

// These are the groups of lanes. The page has a section for each group.
const (
	algorithms = "algorithms"
	processes  = "processes"
	policies   = "policies" // outage policies
	leases     = "leases"
)

const (
	oneRedis = "one_redis" // the lane of processes that share one Redis

	members = 3           // how many processes there are
	work    = time.Second // how long a request is in flight, in the lane that limits requests in flight
)

// numbers contains the numbers of a limit.
type numbers struct {
	variant limits.Variant
	rate    int64 // units per period
	burst   int64 // the capacity of a bucket
	period  time.Duration
}

func (n numbers) limit() core.Limit {
	return n.variant.With(core.Per(n.rate, n.period), limits.Settings{Burst: n.burst})
}

// used returns how much of the limit is used, in units, or -1 if that is not known. For a bucket,
// the result has a fraction, so that the curve falls smoothly.
func (n numbers) used(r core.Result) float64 {
	if r.Limit == 0 || r.Banned {
		return -1
	}
	if n.variant.Kind.Debt {
		return r.ResetAfter.Seconds() * float64(n.rate) / n.period.Seconds()
	}
	return float64(r.Limit - r.Remaining)
}

// A plan describes the limiter of a lane.
type plan struct {
	name   string // the name of the lane, after its algorithm, its option, or what it shows
	group  string
	limits []numbers // the first one is drawn
	cost   int64     // the cost of a request that the lane answers, in units
	code   string    // the option in Go, if it has one
	option core.Option
	member int  // the process to which the lane belongs, from 1; 0 in lanes of one process
	memory bool // whether each process counts in its own memory
}

func (p plan) kind() *algorithm.Kind { return p.limits[0].variant.Kind }

// answers reports whether the lane answers requests of the page's traffic, and shows its responses.
func (p plan) answers() bool { return p.group == algorithms || p.group == policies }

// plans returns a plan for each algorithm and one for two limits, a plan for each process with Redis and another without Redis, a plan
// for each outage policy, and one with leases.
func plans(c config) []plan {
	bucket := numbers{limits.Named(algorithm.TokenBucket.Name), c.Rate, c.Burst, period}
	log := numbers{limits.Named(algorithm.SlidingWindowLog.Name), c.Rate, 0, period}
	longer := numbers{log.variant, c.Rate * 3 / 2, 0, 3 * period}
	var all []plan
	for _, v := range slices.Concat(limits.Aligned(), limits.Slots()) {
		all = append(all, plan{name: v.Kind.Name, limits: []numbers{{v, c.Rate, c.Burst, period}}})
	}
	all = append(all, plan{name: "two_limits", limits: []numbers{bucket, longer}})
	for i := range all {
		p := &all[i]
		p.group, p.cost = algorithms, c.Cost
		if c.Ban && !p.kind().Slots { // InFlight bans no client
			p.code, p.option = "core.Ban(6*time.Second, 12*time.Second)", core.Ban(6*time.Second, 12*time.Second)
		}
	}
	for n := range members {
		all = append(all,
			plan{name: oneRedis, group: processes, member: n + 1, limits: []numbers{log}, code: "core.Processes(3)", option: core.Processes(members)},
			plan{name: "by_itself", group: processes, member: n + 1, limits: []numbers{log}, memory: true})
	}
	small, hot := bucket, bucket
	small.burst = 2 // the limit is reached soon after the policy has begun to decide
	hot.rate, hot.burst = 2*hotTraffic, 2*hotTraffic
	return append(all,
		plan{name: "fail_local", group: policies, cost: 1, limits: []numbers{small}, code: "core.FailLocal()", option: core.FailLocal()},
		plan{name: "fail_open", group: policies, cost: 1, limits: []numbers{small}, code: "core.FailOpen()", option: core.FailOpen()},
		plan{name: "fail_closed", group: policies, cost: 1, limits: []numbers{small}, code: "core.FailClosed()", option: core.FailClosed()},
		plan{name: "lease", group: leases, limits: []numbers{hot}, code: "core.Lease(time.Second)", option: core.Lease(time.Second)},
	)
}

// A lane is a limiter and a handler that it limits. The page draws one chart for
// all lanes with the same name.
type lane struct {
	plan

	limiter *core.Limiter
	handler http.Handler
	clock   func() time.Time // returns the time of Redis's clock
	counter counter          // counts the decisions of a lane with leases
}

// newLanes makes the lanes of the session called id. If c differs from the configuration of earlier lanes, the new lanes
// keep their counts, because the limits have the same names.
// observe is called for every decision. All limiters have the options.
func newLanes(b *backend, id string, c config, clock func() time.Time, observe func(hit, decision), options ...core.Option) ([]*lane, error) {
	var lanes []*lane
	for _, p := range plans(c) {
		l := &lane{plan: p, clock: clock}
		all := append([]core.Option{
			core.Prefix("play:" + id), core.Timeout(b.timeout), l.watch(observe),
			core.Logger(slog.New(slog.DiscardHandler)), // the page causes many outages, and shows them
		}, options...)
		if p.option != nil {
			all = append(all, p.option)
		}
		for _, n := range p.limits {
			all = append(all, n.limit())
		}
		var err error
		switch {
		case p.memory:
			l.limiter, err = core.NewMemory(p.name, append(all, core.Clock(b.now))...)
		case p.member > 0:
			l.limiter, err = core.New(b.others[p.member-1], p.name, all...)
		default:
			l.limiter, err = core.New(b.client, p.name, all...)
		}
		if err != nil {
			return nil, err
		}
		l.handler = httplimit.Middleware(l.limiter, httplimit.Key(clientKey), guard.Cost(func(keyfunc.Request) int64 { return p.cost }))(
			http.HandlerFunc(l.serveAdmitted))
		lanes = append(lanes, l)
	}
	return lanes, nil
}

// watch returns an option that makes the limiter call observe for every decision.
func (l *lane) watch(observe func(hit, decision)) core.Option {
	return core.Observe(func(ctx context.Context, e core.Event) {
		if l.group == leases {
			l.counter.count(e)
		} else if h, ok := ctx.Value(hitKey{}).(hit); ok && e.Kind == core.EventDecision {
			observe(h, l.decision(h, e))
		}
	})
}

func closeLanes(lanes []*lane) {
	for _, l := range lanes {
		_ = l.limiter.Close() // Close does not close the client and returns nil
	}
}

func (l *lane) described() described {
	kind := l.kind()
	d := described{
		Name: l.name, Group: l.group, Bucket: kind.Debt, Delays: kind.Delays, Windows: l.limits[0].variant.Aligned, Slots: kind.Slots,
		Second: len(l.limits) > 1,
	}
	if l.member > 0 {
		d.Members = members
	}
	return d
}

// serveAdmitted is the handler that the lane limits.
func (l *lane) serveAdmitted(w http.ResponseWriter, r *http.Request) {
	if l.kind().Slots {
		sleep(r.Context(), work)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("served\n"))
}

// clientKey is the key function of the lanes.
func clientKey(r *http.Request) (string, error) {
	if client := r.Header.Get(clientHeader); client != "" {
		return keyOf(client), nil
	}
	return "", keyfunc.ErrNoKey
}

func keyOf(client string) string { return "client:" + client }

// A hit contains what the page shows of a request besides the decision.
type hit struct {
	client string
	by     string // "traffic", or "hand" for a request that the user has sent
}

// hitKey is the key under which a request's context stores the hit.
type hitKey struct{}

func withHit(ctx context.Context, h hit) context.Context { return context.WithValue(ctx, hitKey{}, h) }

// serve sends a request of the traffic through the lane's handler. It returns when the
// request has been answered; with a leaky bucket, that is when its turn has come.
func (l *lane) serve(ctx context.Context, h hit) *answer {
	r := (&http.Request{Method: http.MethodPost, Header: http.Header{}, Body: http.NoBody}).WithContext(withHit(ctx, h))
	r.Header.Set(clientHeader, h.client)
	a := &answer{header: http.Header{}}
	l.handler.ServeHTTP(a, r)
	return a
}

// answer is like serve, and returns the part of the answer that the page shows.
func (l *lane) answer(ctx context.Context, h hit) response {
	a := l.serve(ctx, h)
	return response{l.name, h.client, h.by, a.status, a.lines(), string(a.body)}
}

// used returns how much of the first limit is used, in units, and which part of the second limit, if there is one. A result is -1 if it
// is not known.
func (l *lane) used(r core.Result) (used, also float64) {
	i := 0
	for each := range r.All() {
		if i == 0 {
			used = l.limits[0].used(each)
		} else if also = l.limits[i].used(each); also > 0 {
			also /= float64(each.Limit)
		}
		i++
	}
	return used, also
}

func (l *lane) decision(h hit, e core.Event) decision {
	r := e.Result
	used, also := l.used(r)
	d := decision{
		Lane:    l.name,
		Client:  h.client,
		By:      h.by,
		At:      millis(r.At),
		Allowed: r.Allowed,
		Delay:   float64(r.Delay) / float64(time.Millisecond),
		Used:    used,
		Also:    also,
		Second:  !r.Allowed && len(l.limits) > 1 && r.LimitName == l.limits[1].limit().Name(),
		Member:  l.member,
		Banned:  banned(r),
		Source:  r.Source.String(),
	}
	if e.Err != nil || !byRedis(r) {
		d.At = millis(l.clock()) // there is no reply with the time of Redis
	}
	return d
}

// byRedis reports whether a Result is a decision of Redis, perhaps an earlier one that the deny cache repeats.
func byRedis(r core.Result) bool {
	return r.Source == core.SourceRedis || r.Source == core.SourceDenyCache
}

// banned returns how long a key is still banned, in milliseconds; 0 if it is not banned.
func banned(r core.Result) float64 {
	if !r.Banned {
		return 0
	}
	return float64(r.RetryAfter) / float64(time.Millisecond)
}

// millis returns a time as JavaScript represents it: in milliseconds since the Unix epoch.
func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }
