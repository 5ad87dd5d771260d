package main

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// clientHeader is the header that names the client of a request.
const clientHeader = "X-Client"

// The groups of lanes. The page has a section for each.
const (
	algorithms = "algorithms"
	policies   = "policies" // outage policies
	leases     = "leases"
)

// A plan says what the limiter of a lane is made of.
type plan struct {
	name    string // of the lane: that of its algorithm or of its option
	group   string
	variant limits.Variant
	rate    int64  // units per period
	burst   int64  // of a bucket
	code    string // the option in Go, if it has one
	option  core.Option
}

// plans returns a plan for each algorithm, one for each outage policy, and one with
// leases.
func plans(c config) []plan {
	all := make([]plan, 0, len(limits.Aligned())+4)
	for _, v := range limits.Aligned() {
		p := plan{name: v.Kind.Name, group: algorithms, variant: v, rate: c.Rate, burst: c.Burst}
		if c.Ban {
			p.code, p.option = "core.Ban(6*time.Second, 12*time.Second)", core.Ban(6*time.Second, 12*time.Second)
		}
		all = append(all, p)
	}
	for _, p := range []plan{
		// With a small burst the limit shows soon after the policy has begun to decide.
		{name: "fail_local", group: policies, rate: c.Rate, burst: 2, code: "core.FailLocal()", option: core.FailLocal()},
		{name: "fail_open", group: policies, rate: c.Rate, burst: 2, code: "core.FailOpen()", option: core.FailOpen()},
		{name: "fail_closed", group: policies, rate: c.Rate, burst: 2, code: "core.FailClosed()", option: core.FailClosed()},
		{name: "lease", group: leases, rate: 2 * hotTraffic, burst: 2 * hotTraffic, code: "core.Lease(time.Second)", option: core.Lease(time.Second)},
	} {
		p.variant = limits.Named(algorithm.TokenBucket.Name)
		all = append(all, p)
	}
	return all
}

// A lane is one limiter, with a handler that it limits. The page draws one chart for
// each lane.
type lane struct {
	plan

	limit   core.Limit
	limiter *core.Limiter
	handler http.Handler
	clock   func() time.Time // Redis's
	counter counter          // of leases
}

// newLanes makes the lanes of the session called id. When c changes, the new lanes
// keep the counts of the old ones: they are the same limits with other numbers.
// observe is called for every decision; all limiters have the options.
func newLanes(b *backend, id string, c config, clock func() time.Time, observe func(hit, decision), options ...core.Option) ([]*lane, error) {
	var lanes []*lane
	for _, p := range plans(c) {
		l := &lane{plan: p, limit: p.limitOf(), clock: clock}
		watch := core.Observe(func(ctx context.Context, e core.Event) {
			if p.group == leases {
				l.counter.count(e)
			} else if h, ok := ctx.Value(hitKey{}).(hit); ok && e.Kind == core.EventDecision {
				observe(h, l.decision(h, e))
			}
		})
		all := append([]core.Option{
			l.limit, watch, core.Prefix("play:" + id), core.Timeout(b.timeout),
			core.Logger(slog.New(slog.DiscardHandler)), // the page shows outages; it makes many
		}, options...)
		if p.option != nil {
			all = append(all, p.option)
		}
		var err error
		if l.limiter, err = core.New(b.client, p.name, all...); err != nil {
			return nil, err
		}
		l.handler = httplimit.Middleware(l.limiter, httplimit.Key(clientKey))(http.HandlerFunc(served))
		lanes = append(lanes, l)
	}
	return lanes, nil
}

func (p plan) limitOf() core.Limit {
	return p.variant.With(core.Per(p.rate, period), limits.Settings{Burst: p.burst})
}

func closeLanes(lanes []*lane) {
	for _, l := range lanes {
		_ = l.limiter.Close() // Close does not close the client and returns nil
	}
}

func (l *lane) described() described {
	kind := l.variant.Kind
	return described{l.name, l.group, kind.Bucket, kind.Delays, l.variant.Aligned}
}

func served(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("served\n"))
}

func clientKey(r *http.Request) (string, error) {
	if client := r.Header.Get(clientHeader); client != "" {
		return keyOf(client), nil
	}
	return "", keyfunc.ErrNoKey
}

func keyOf(client string) string { return "client:" + client }

// A hit is what the page shows of a request besides the decision.
type hit struct {
	client string
	by     string // "traffic" or "hand"
}

// hitKey is the key of the hit in a request's context.
type hitKey struct{}

func withHit(ctx context.Context, h hit) context.Context { return context.WithValue(ctx, hitKey{}, h) }

// serve sends a request of the traffic through the lane's handler. It returns when the
// request is answered; with a leaky bucket that is when its turn has come.
func (l *lane) serve(ctx context.Context, h hit) *answer {
	r := (&http.Request{Method: http.MethodPost, Header: http.Header{}, Body: http.NoBody}).WithContext(withHit(ctx, h))
	r.Header.Set(clientHeader, h.client)
	a := &answer{header: http.Header{}}
	l.handler.ServeHTTP(a, r)
	return a
}

// answer is serve, and returns what the page shows of the answer.
func (l *lane) answer(ctx context.Context, h hit) response {
	a := l.serve(ctx, h)
	return response{l.name, h.client, h.by, a.status, a.lines(), string(a.body)}
}

// used returns how much of the limit is used, in units; -1 if nobody says. For a bucket
// it has a fraction, so that its curve falls smoothly.
func (l *lane) used(r core.Result) float64 {
	if r.Limit == 0 || r.Banned {
		return -1
	}
	if l.variant.Kind.Bucket {
		return r.ResetAfter.Seconds() * float64(l.rate) / period.Seconds()
	}
	return float64(r.Limit - r.Remaining)
}

func (l *lane) decision(h hit, e core.Event) decision {
	r := e.Result
	d := decision{
		Lane:    l.name,
		Client:  h.client,
		By:      h.by,
		At:      millis(r.At),
		Allowed: r.Allowed,
		Delay:   float64(r.Delay) / float64(time.Millisecond),
		Used:    l.used(r),
		Banned:  banned(r),
		Source:  r.Source.String(),
	}
	if e.Err != nil || r.Source == core.SourceNone || r.Source == core.SourceFallback {
		d.At = millis(l.clock()) // Redis has not said what time it is
	}
	return d
}

// banned returns how long a key is banned, in milliseconds; 0 if it is not.
func banned(r core.Result) float64 {
	if !r.Banned {
		return 0
	}
	return float64(r.RetryAfter) / float64(time.Millisecond)
}

// millis returns an instant as in JavaScript: milliseconds since the Unix epoch.
func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }
