package main

import (
	"context"
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

// A lane is one algorithm, with its limiter and a handler that it limits. The page
// draws one chart for each lane.
type lane struct {
	algorithm string
	limiter   *core.Limiter
	handler   http.Handler
	kind      *algorithm.Kind
	rate      int64
}

// newLanes makes a lane of each algorithm for the session called id. When c changes, the new lanes
// keep the counts of the old ones: they are the same limits with other numbers.
// observe is called for every decision; all limiters have the options.
func newLanes(client core.Client, id string, c config, observe func(hit, decision), options ...core.Option) ([]*lane, error) {
	rate := core.Per(c.Rate, period)
	var lanes []*lane
	for _, v := range limits.Aligned() {
		limit := v.With(rate, limits.Settings{Burst: c.Burst})
		l := &lane{algorithm: limit.Algorithm(), kind: v.Kind, rate: c.Rate}
		watch := core.Observe(func(ctx context.Context, e core.Event) {
			if h, ok := ctx.Value(hitKey{}).(hit); ok && e.Kind == core.EventDecision && e.Err == nil {
				observe(h, l.decision(h, e.Result))
			}
		})
		var err error
		l.limiter, err = core.New(client, "play-"+id+"-"+l.algorithm, append([]core.Option{limit, watch}, options...)...)
		if err != nil {
			return nil, err
		}
		l.handler = httplimit.Middleware(l.limiter, httplimit.Key(clientKey))(http.HandlerFunc(served))
		lanes = append(lanes, l)
	}
	return lanes, nil
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

// serve sends a request of the traffic through the lane's handler. It returns when the
// request is answered; with a leaky bucket that is when its turn has come.
func (l *lane) serve(ctx context.Context, h hit) *answer {
	ctx = context.WithValue(ctx, hitKey{}, h)
	r := (&http.Request{Method: http.MethodPost, Header: http.Header{}, Body: http.NoBody}).WithContext(ctx)
	r.Header.Set(clientHeader, h.client)
	a := &answer{header: http.Header{}}
	l.handler.ServeHTTP(a, r)
	return a
}

// used returns how much of the limit is used, in units. For a bucket it has a
// fraction, so that its curve falls smoothly.
func (l *lane) used(r core.Result) float64 {
	if l.kind.Bucket {
		return r.ResetAfter.Seconds() * float64(l.rate) / period.Seconds()
	}
	return float64(r.Limit - r.Remaining)
}

func (l *lane) decision(h hit, r core.Result) decision {
	return decision{
		Algorithm: l.algorithm,
		Client:    h.client,
		By:        h.by,
		At:        millis(r.At),
		Allowed:   r.Allowed,
		Delay:     float64(r.Delay) / float64(time.Millisecond),
		Limit:     r.Limit,
		Remaining: r.Remaining,
		Used:      l.used(r),
		Source:    r.Source.String(),
	}
}

// millis returns an instant as in JavaScript: milliseconds since the Unix epoch.
func millis(t time.Time) float64 { return float64(t.UnixMicro()) / 1000 }
