package httpsuite

import (
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// limitForCases are about limits that differ between requests.
func limitForCases() []testCase {
	return []testCase{
		{"LimitFor", limitFor, nil},
		{"LimitForChanges", limitForChanges, nil},
		{"LimitForFails", limitForFails, nil},
	}
}

// customers has a number for each customer, as a table in memory would.
func customers(numbers map[string]int64) guard.Option {
	return guard.LimitFor(func(r keyfunc.Request) ([]core.Limit, error) {
		n, known := numbers[r.Header("Customer")]
		if !known {
			return nil, nil
		}
		return []core.Limit{core.FixedWindow(core.PerMinute(n)), core.GCRA(core.PerHour(100))}, nil
	})
}

func customer(r keyfunc.Request) (string, error) { return "customer:" + r.Header("Customer"), nil }

// limitFor has each customer limited by numbers of its own, which its headers show.
func limitFor(b *testbed) {
	limit := Limit{Limiter: b.limiter(core.FixedWindow(core.PerMinute(1))), Key: customer}
	limit.Options = []guard.Option{customers(map[string]int64{"acme": 2, "initech": 4}), guard.Headers(guard.XRateLimit | guard.IETF)}
	s := b.behind(limit)
	for _, step := range []struct {
		customer         string
		status           int
		limit, remaining string
	}{
		{"acme", http.StatusOK, "2", "1"},
		{"initech", http.StatusOK, "4", "3"},
		{"unknown", http.StatusOK, "1", "0"},
		{"acme", http.StatusOK, "2", "0"},
		{"acme", http.StatusTooManyRequests, "2", "0"},
		{"initech", http.StatusOK, "4", "2"},
		{"unknown", http.StatusTooManyRequests, "1", "0"},
	} {
		ans := s.get("/a", "Customer: "+step.customer)
		ans.wantStatus(step.status)
		ans.wantHeader("X-RateLimit-Limit", step.limit)
		ans.wantHeader("X-RateLimit-Remaining", step.remaining)
	}
}

// limitForChanges has the number of a customer change: what it has used stays used. A
// failed request is not counted.
func limitForChanges(b *testbed) {
	var number atomic.Int64
	number.Store(2)
	limit := Limit{Limiter: b.limiter(core.FixedWindow(core.PerMinute(1))), Key: customer}
	limit.Options = []guard.Option{
		guard.LimitFor(func(keyfunc.Request) ([]core.Limit, error) {
			return []core.Limit{core.FixedWindow(core.PerMinute(number.Load()))}, nil
		}),
		guard.CountIf(func(status int) bool { return status != http.StatusTeapot }),
	}
	s := b.serve(App{Use: []Mount{limit}, Groups: []Group{{Routes: []Route{{Path: "/a"}, {Path: "/teapot", Handler: Handler{Status: http.StatusTeapot}}}}}})
	s.get("/a").wantServed()
	s.get("/teapot").wantStatus(http.StatusTeapot)
	s.get("/a").wantServed()
	s.get("/a").wantDenied()
	number.Store(5)
	ans := s.get("/a")
	ans.wantServed()
	ans.wantHeader("X-RateLimit-Limit", "5")
	ans.wantHeader("X-RateLimit-Remaining", "2")
	number.Store(3)
	s.get("/a").wantDenied()
}

// limitForFails has numbers that are wrong, or none: no request passes unlimited, and a
// wrong number is logged once.
func limitForFails(b *testbed) {
	limit := b.fixed(1)
	limit.Options = []guard.Option{guard.LimitFor(func(r keyfunc.Request) ([]core.Limit, error) {
		if r.Header("Number") == "down" {
			return nil, errors.New("secret database is down")
		}
		if r.Header("Number") == "empty" {
			return []core.Limit{}, nil
		}
		n, err := strconv.ParseInt(r.Header("Number"), 10, 64)
		return []core.Limit{core.FixedWindow(core.PerMinute(n))}, err
	})}
	s := b.behind(limit)
	for _, number := range []string{"0", "-7", "empty", "0", "-7", "empty", "0"} {
		ans := s.get("/a", "Number: "+number)
		ans.wantStatus(http.StatusInternalServerError)
		ans.wantNoHeaders()
	}
	if n := b.logs.count("level=ERROR"); n != 3 || b.logs.count("-7/1m") != 1 || b.logs.count("no limit given") != 1 {
		b.Errorf("%d errors logged, want one for each wrong limit: %s", n, b.logs.text.String())
	}
	ans := s.get("/a", "Number: down")
	ans.wantStatus(http.StatusInternalServerError)
	ans.wantHidden("secret")
	s.get("/a", "Number: 1").wantServed()
}
