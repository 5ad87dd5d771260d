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

// retryCases test the times at which responses ask many denied clients to retry.
func retryCases() []testCase {
	return []testCase{
		{"RetryJitter", retryJitter, nil},
		{"RetrySeveral", retrySeveral, nil},
		{"RetryAfterMs", retryAfterMs, nil},
		{"RetryInFlight", retryInFlight, nil},
	}
}

// crowd is how many clients are denied together for each second in which they may retry. With this number, a second is
// missing only once in a billion times.
const crowd = 25

// A retry is when a response asks its client to retry, in seconds and in milliseconds.
type retry struct{ seconds, ms int64 }

// wantRetry returns when a denied client should retry. It checks that all headers in whole seconds agree, and that
// X-RateLimit-Reset is the same for all clients.
func (a answer) wantRetry(reset string) retry {
	a.Helper()
	after := a.header.Get("Retry-After")
	a.wantDenied()
	a.wantHeader("X-RateLimit-Reset", reset)
	if a.header.Get("RateLimit") != "" {
		a.wantHeader("RateLimit", `"api";r=0;t=`+after)
	}
	if body := quotaExceeded(`,"violated-policies":["api"],"limit":1,"retry-after":` + after); !strings.HasSuffix(a.body, body) {
		a.Errorf("Retry-After is %s and the body %q, want both equal", after, a.body)
	}
	seconds, err := strconv.ParseInt(after, 10, 64)
	ms, errMs := strconv.ParseInt(a.header.Get("Retry-After-Ms"), 10, 64)
	if err != nil || errMs != nil {
		a.Errorf("Retry-After or Retry-After-Ms is not a number: %v, %v", err, errMs)
	}
	return retry{seconds, ms}
}

// wantSpread checks that the seconds are all those from first to last, and that the milliseconds are spread between least
// and most.
func (b *testbed) wantSpread(all []retry, first, last, least, most int64) {
	b.Helper()
	seconds, ms := map[int64]bool{}, map[int64]bool{}
	for _, r := range all {
		seconds[r.seconds], ms[r.ms] = true, true
		if r.seconds < first || r.seconds > last || r.ms < least || r.ms > most {
			b.Errorf("a response says %d s and %d ms, want %d to %d s and %d to %d ms", r.seconds, r.ms, first, last, least, most)
		}
		if apart := (1000*r.seconds - r.ms); apart < -1000 || apart > 2000 {
			b.Errorf("a response says %d s and %d ms, want both to agree", r.seconds, r.ms)
		}
	}
	if int64(len(seconds)) != last-first+1 || most > least && len(ms) < 3 {
		b.Errorf("got %d different numbers of seconds, want %d; and %d of milliseconds, want at least 3", len(seconds), last-first+1, len(ms))
	}
}

// retryJitter denies a crowd at the same instant. TestRetryIn tests other waits and other bounds.
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

// retrySeveral makes two limits deny, one of which admits again within the bound. No t is after Retry-After.
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
			b.Fatalf("RateLimit is %q, want two limits: %v", ans.header.Get("RateLimit"), err)
		}
		ans.wantHeader("Retry-After", strconv.FormatInt(t[1], 10))
		if t[0] > t[1] {
			b.Errorf("the first limit has t=%d and the second t=%d, want the first not later", t[0], t[1])
		}
		all = append(all, ans.header.Get("Retry-After"))
	}
	slices.Sort(all)
	if all = slices.Compact(all); !slices.Equal(all, []string{"25", "26", "27", "28", "29", "30"}) {
		b.Errorf("the values of Retry-After are %v, want 25 to 30", all)
	}
}

// retryAfterMs checks Retry-After-Ms, which is present if and only if Retry-After is, and is rounded up, too. A cost that
// can never be admitted has neither.
func retryAfterMs(b *testbed) {
	limit := b.fixed(2)
	limit.Options = []guard.Option{guard.RetryAfterMs(), guard.ExposeHeaders(), guard.MaxRetryAfter(time.Hour), guard.Cost(func(r keyfunc.Request) int64 {
		return int64(len(r.Path())) // 2 for /a, 3 for /ab
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

// retryInFlight denies a crowd for want of a slot, and then because Redis is unavailable: the clients are spread within the
// second after which they may retry.
func retryInFlight(b *testbed) {
	slots := b.slots(1, guard.RetryJitter(0.2), guard.RetryAfterMs())
	if r, err := slots.Limiter.Acquire(b.Context(), ipKey, 1); err != nil || !r.Allowed {
		b.Fatalf("Acquire: got %+v, %v; want it admitted", r, err)
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
