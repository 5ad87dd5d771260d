package httpsuite

import (
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// ietfCases test the fields of the IETF draft. An independent parser of RFC 9651 must accept them.
func ietfCases() []testCase {
	return []testCase{{"IETF", ietf, nil}}
}

// An ietfStep is a request after some time, and the headers of its response.
type ietfStep struct {
	later      time.Duration
	rate       string // the header RateLimit
	retryAfter string
}

func ietf(b *testbed) {
	for _, c := range []struct {
		name   string
		limits []core.Option
		cost   int64
		policy string
		steps  []ietfStep
	}{
		{
			"One", []core.Option{core.FixedWindow(core.PerMinute(2))}, 1, `"api";q=2;w=60`, []ietfStep{
				{0, `"api";r=1;t=60`, ""},
				{999_999 * time.Microsecond, `"api";r=0;t=60`, ""},
				{time.Microsecond, `"api";r=0;t=59`, "59"},
			},
		},
		{
			"Pace", []core.Option{core.FixedWindow(core.PerMinute(1000), core.Aligned())}, 1, `"api";q=1000;w=60`, []ietfStep{
				{0, `"api";r=999;t=60`, ""}, // not 48, when the window ends: 999 units in 48 s are more than 1000 a minute
				{40 * time.Second, `"api";r=998;t=60`, ""},
			},
		},
		{
			"Denied", []core.Option{core.TokenBucket(core.PerMinute(3))}, 2, `"api";q=3;w=60`, []ietfStep{
				{0, `"api";r=1;t=40`, ""},
				{0, `"api";r=1;t=20`, "20"}, // the cost needs one more unit, and not all of them
			},
		},
		{
			"Never", []core.Option{core.TokenBucket(core.PerMinute(3))}, 4, `"api";q=3;w=60`, []ietfStep{
				{0, `"api";r=3`, ""},
			},
		},
		{
			// 10 units come back in 33.3 s, at 3 per 10 s.
			"Burst", []core.Option{core.TokenBucket(core.Per(3, 10*time.Second), core.Burst(10))}, 1,
			`"api";q=10;w=34`, []ietfStep{{0, `"api";r=9;t=31`, ""}},
		},
		{
			"Several", []core.Option{core.TokenBucket(core.PerSecond(2)), core.FixedWindow(core.PerMinute(5))}, 2,
			`"api-token-1s";q=2;w=1, "api-fixed-1m";q=5;w=60`, []ietfStep{
				{0, `"api-token-1s";r=0;t=1, "api-fixed-1m";r=3;t=60`, ""},
				{0, `"api-token-1s";r=0;t=1, "api-fixed-1m";r=3;t=60`, "1"},
				{time.Second, `"api-token-1s";r=0;t=1, "api-fixed-1m";r=1;t=59`, ""},
				{time.Second, `"api-token-1s";r=2;t=1, "api-fixed-1m";r=1;t=58`, "58"},
			},
		},
		{
			"Named", []core.Option{core.GCRA(core.PerSecond(1), core.LimitName("a.b_c-d"))}, 1, `"api";q=1;w=1`, []ietfStep{
				{0, `"api";r=0;t=1`, ""},
			},
		},
	} {
		b.each(c.name, func(b *testbed) {
			s := b.behind(Limit{Limiter: b.limiter(c.limits...), Key: keyfunc.IP(), Options: []guard.Option{
				guard.Headers(guard.IETF), estimate(c.cost),
			}})
			for _, step := range c.steps {
				b.advance(step.later)
				ans := s.get("/a")
				ans.wantHeaders("", "", "", step.retryAfter)
				ans.wantHeader("RateLimit-Policy", c.policy)
				ans.wantHeader("RateLimit", step.rate)
				for _, name := range []string{"RateLimit-Policy", "RateLimit"} {
					if _, err := httpsfv.UnmarshalList(ans.header.Values(name)); err != nil {
						b.Errorf("the header %s is %q, want a valid list: %v", name, ans.header.Values(name), err)
					}
				}
			}
		})
	}
}
