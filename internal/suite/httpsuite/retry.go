package httpsuite

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// retryCases are about the times at which a crowd of denied clients should come back.
func retryCases() []testCase {
	return []testCase{
		{"RetryJitter", retryJitter, nil},
		{"RetrySeveral", retrySeveral, nil},
		{"RetryAfterMs", retryAfterMs, nil},
		{"RetryInFlight", retryInFlight, nil},
	}
}

// crowd is how many clients are denied together for each second at which they may come back: a second is
// missing once in a billion times.
const crowd = 25

// A retry is when one of them should come back, in seconds and milliseconds.
type retry struct{ seconds, ms int64 }

// wantRetry returns when a denied client should come back. All headers in whole seconds agree, and
// X-RateLimit-Reset is the same for everybody.
func (a answer) wantRetry(reset string) retry {
	a.Helper()
	after := a.header.Get("Retry-After")
	a.wantDenied()
	a.wantHeader("X-RateLimit-Reset", reset)
	if a.header.Get("RateLimit") != "" {
		a.wantHeader("RateLimit", `"api";r=0;t=`+after)
	}
	if body := quotaExceeded(`,"violated-policies":["api"],"limit":1,"retry-after":` + after); !strings.HasSuffix(a.body, body) {
		a.Errorf("Retry-After %s, body %q", after, a.body)
	}
	seconds, err := strconv.ParseInt(after, 10, 64)
	ms, errMs := strconv.ParseInt(a.header.Get("Retry-After-Ms"), 10, 64)
	if err != nil || errMs != nil {
		a.Errorf("%v, %v", err, errMs)
	}
	return retry{seconds, ms}
}

// wantSpread checks that the seconds are all of those from first to last, and the milliseconds are spread between least and
// most.
func (b *testbed) wantSpread(all []retry, first, last, least, most int64) {
	b.Helper()
	seconds, ms := map[int64]bool{}, map[int64]bool{}
	for _, r := range all {
		seconds[r.seconds], ms[r.ms] = true, true
		if r.seconds < first || r.seconds > last || r.ms < least || r.ms > most {
			b.Errorf("told are %d s and %d ms, want %d to %d and %d to %d", r.seconds, r.ms, first, last, least, most)
		}
		if apart := (1000*r.seconds - r.ms); apart < -1000 || apart > 2000 {
			b.Errorf("told are %d s and %d ms", r.seconds, r.ms)
		}
	}
	if int64(len(seconds)) != last-first+1 || most > least && len(ms) < 3 {
		b.Errorf("told are %d different seconds, want %d, and %d milliseconds", len(seconds), last-first+1, len(ms))
	}
}

// retryJitter has a crowd denied in the same instant. Other waits, and other bounds, are in TestRetryIn.
func retryJitter(b *testbed) {
	jitter, bound := guard.RetryJitter(0.2), guard.MaxRetryAfter(10*time.Second)
	for _, c := range []struct {
		name                     string
		options                  []guard.Option
		first, last, least, most int64
	}{
		{"Minute", []guard.Option{jitter}, 60, 72, 60_000, 72_000},
		{"Bounded", []guard.Option{bound}, 10, 10, 10_000, 10_000},
		{"JitterBounded", []guard.Option{jitter, bound}, 9, 10, 8333, 10_000},
	} {
		b.each(c.name, func(b *testbed) {
			limit := b.fixed(1)
			limit.Options = slices.Concat(c.options, []guard.Option{guard.RetryAfterMs(), guard.Headers(guard.IETF | guard.XRateLimit)})
			s := b.behind(limit)
			s.get("/a").wantServed()
			var all []retry
			for range crowd * (c.last - c.first + 1) {
				all = append(all, s.get("/a").wantRetry("1800000073"))
			}
			b.wantSpread(all, c.first, c.last, c.least, c.most)
		})
	}
}

// retrySeveral has two limits deny, of which one admits again within the bound. No t is after Retry-After.
func retrySeveral(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.Per(1, 29*time.Second)), core.FixedWindow(core.PerHour(1)))
	s := b.behind(Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{
		guard.RetryJitter(0.2), guard.MaxRetryAfter(30 * time.Second), guard.Headers(guard.IETF),
	}})
	s.get("/a").wantServed()
	var all []string
	for range 6 * crowd {
		ans := s.get("/a")
		var t [2]int64
		if _, err := fmt.Sscanf(ans.header.Get("RateLimit"), `"api-fixed-29s";r=0;t=%d, "api-fixed-1h";r=0;t=%d`, &t[0], &t[1]); err != nil {
			b.Fatalf("RateLimit %q: %v", ans.header.Get("RateLimit"), err)
		}
		ans.wantHeader("Retry-After", strconv.FormatInt(t[1], 10))
		if t[0] > t[1] {
			b.Errorf("%d and %d", t[0], t[1])
		}
		all = append(all, ans.header.Get("Retry-After"))
	}
	slices.Sort(all)
	if all = slices.Compact(all); !slices.Equal(all, []string{"25", "26", "27", "28", "29", "30"}) {
		b.Errorf("Retry-After is one of %v, want 25 to 30", all)
	}
}

// retryAfterMs is wherever Retry-After is, and rounded up as well. What can never be admitted has neither.
func retryAfterMs(b *testbed) {
	limit := b.fixed(2)
	limit.Options = []guard.Option{guard.RetryAfterMs(), guard.ExposeHeaders(), guard.MaxRetryAfter(time.Hour), guard.Cost(func(r keyfunc.Request) int64 {
		return int64(len(r.Path())) // 2 of /a, 3 of /ab
	})}
	s := b.behind(limit, Route{Path: "/a"}, Route{Path: "/ab"})
	for _, step := range []struct {
		path              string
		later             time.Duration
		status            int
		retryAfter, retry string
	}{
		{"/a", 0, http.StatusOK, "", ""},
		{"/a", 0, http.StatusTooManyRequests, "60", "60000"},
		{"/a", time.Microsecond, http.StatusTooManyRequests, "60", "60000"},
		{"/a", time.Second, http.StatusTooManyRequests, "59", "59000"},
		{"/a", 499 * time.Millisecond, http.StatusTooManyRequests, "59", "58501"},
		{"/ab", 0, http.StatusTooManyRequests, "", ""},
	} {
		b.advance(step.later)
		ans := s.get(step.path)
		ans.wantStatus(step.status)
		ans.wantHeader("Retry-After", step.retryAfter)
		ans.wantHeader("Retry-After-Ms", step.retry)
		ans.wantExposed("x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after retry-after-ms")
	}
	b.redis.SetError("LOADING")
	ans := s.get("/a")
	ans.wantStatus(http.StatusServiceUnavailable)
	ans.wantHeader("Retry-After", "1")
	ans.wantHeader("Retry-After-Ms", "1000")
}

// retryInFlight has no slot for a crowd, and then no Redis: the second after which they may come is spread, too.
func retryInFlight(b *testbed) {
	slots := b.slots(1, guard.RetryJitter(0.2), guard.RetryAfterMs())
	if r, err := slots.Limiter.Acquire(b.Context(), ipKey, 1); err != nil || !r.Allowed {
		b.Fatal(r, err)
	}
	s := b.behind(slots)
	var denied, failed []retry
	for range crowd {
		denied = append(denied, s.get("/a").wantRetry(""))
	}
	b.redis.SetError("LOADING")
	for range crowd {
		ans := s.get("/a")
		ans.wantStatus(http.StatusServiceUnavailable)
		ans.wantHeader("Retry-After", "1")
		ms, _ := strconv.ParseInt(ans.header.Get("Retry-After-Ms"), 10, 64)
		failed = append(failed, retry{1, ms})
	}
	b.redis.SetError("")
	b.wantSpread(denied, 1, 1, 1000, 1200)
	b.wantSpread(failed, 1, 1, 1000, 1200)
}
