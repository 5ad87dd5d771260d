package admin

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
)

// data is everything that the page shows.
type data struct {
	Process  string        `json:"process"` // shown because the next response may come from another process, behind a load balancer
	At       time.Time     `json:"at"`
	Limiters []limiterData `json:"limiters"`
	Kinds    []kind        `json:"kinds"` // the ways to look a key up
}

// limiterData has what was counted for a limiter in the last 5 minutes, except that its keys were
// counted since KeysSince.
type limiterData struct {
	Name       string         `json:"name"`
	Limits     []string       `json:"limits"`
	Outage     string         `json:"outage,omitempty"` // the outage policy; empty for a limiter in memory
	Bans       bool           `json:"bans"`             // whether keys can be blocked
	Decisions  []uint32       `json:"decisions"`        // in each second, the oldest first
	Denied     []uint32       `json:"denied"`
	Sources    map[string]int `json:"sources"` // how many decisions each source made; "error" counts failures
	P50        float64        `json:"p50"`     // in seconds; 0 without decisions
	P99        float64        `json:"p99"`
	Servers    []serverData   `json:"servers"`
	KeysSince  time.Time      `json:"keysSince"`
	MostAsked  []keyData      `json:"mostAsked"`
	MostDenied []keyData      `json:"mostDenied"`
}

type serverData struct {
	Addr  string     `json:"addr"`
	State string     `json:"state"` // "up", "doubted" or "down"
	Since *time.Time `json:"since,omitempty"`
	Error string     `json:"error,omitempty"`
}

// keyData is a key with its count since KeysSince. The true count is at least Count-Over. It is at most Count,
// unless one of the two periods that are added had too many keys, and has forgotten this one.
type keyData struct {
	Key   string `json:"key"`
	ID    []byte `json:"id,omitempty"` // the bytes of Key; empty if Key may have been cut
	Count int64  `json:"count"`
	Over  int64  `json:"over,omitempty"`
}

// process names this process.
var process = func() string {
	host, _ := os.Hostname()
	return host + ":" + strconv.Itoa(os.Getpid())
}()

func (w *Watch) data() data {
	now := time.Since(w.began)
	d := data{Process: process, At: time.Now(), Limiters: []limiterData{}, Kinds: *w.kinds.Load()}
	all := *w.byName.Load()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d.Limiters = append(d.Limiters, all[name].data(w.began, now))
	}
	return d
}

func (s *watched) data(began time.Time, now time.Duration) limiterData {
	// The outage policy, the bans and the servers are not in core's API.
	seen := inside.Core.Inspect(s.limiter)
	d := limiterData{
		Name: s.limiter.Name(), Outage: seen.Policy, Bans: seen.Bans, Sources: map[string]int{}, Servers: []serverData{},
		Decisions: make([]uint32, shownSeconds), Denied: make([]uint32, shownSeconds),
	}
	for _, l := range s.limiter.Limits() {
		d.Limits = append(d.Limits, l.String())
	}
	s.seconds.last(now, d.count)
	d.P50, d.P99 = s.latency(now)
	for _, sv := range seen.Servers {
		shown := serverData{Addr: sv.Addr, State: sv.State}
		if !sv.Since.IsZero() {
			shown.Since = &sv.Since
		}
		if sv.Cause != nil {
			shown.Error = sv.Cause.Error()
		}
		d.Servers = append(d.Servers, shown)
	}
	var since time.Duration
	d.MostAsked, since = s.most(requested, now)
	d.MostDenied, _ = s.most(denied, now)
	d.KeysSince = began.Add(since)
	return d
}

// count adds the counts of one second. i is the index of the second in Decisions and Denied.
func (d *limiterData) count(i int, counts []atomic.Uint32) {
	for was := range countFailed + 1 {
		n := counts[was].Load()
		if n == 0 {
			continue
		}
		name := "error"
		if was != countFailed {
			name = core.Source(was).String()
		}
		d.Sources[name] += int(n)
		d.Decisions[i] += n
	}
	d.Denied[i] = counts[countDenied].Load()
}

// latency returns the median and the 99th percentile of the latencies in the last 5 minutes, in seconds.
// Decisions of the present 10 seconds count as well.
func (s *watched) latency(now time.Duration) (p50, p99 float64) {
	var sums [latencyBuckets]uint64
	var all uint64
	s.took.last(now+everyLatency, func(_ int, counts []atomic.Uint32) {
		for i := range counts {
			sums[i] += uint64(counts[i].Load())
			all += uint64(counts[i].Load())
		}
	})
	var sum uint64
	for i, n := range sums {
		if n == 0 {
			continue
		}
		before, within := sum, latencyWithin(i).Seconds()
		sum += n
		if 2*before < all && 2*sum >= all {
			p50 = within
		}
		if 100*before < 99*all && 100*sum >= 99*all {
			p99 = within
		}
	}
	return p50, p99
}

// shownKeys is how many keys the page shows.
const shownKeys = 10

func (s *watched) most(what int, now time.Duration) (all []keyData, since time.Duration) {
	most, since := s.keys.most(what, shownKeys, now)
	all = make([]keyData, len(most))
	for i, c := range most {
		all[i] = keyData{Key: c.key, ID: []byte(c.key), Count: c.count, Over: c.over}
		if len(c.key) == maxKey {
			all[i].ID = nil
		}
	}
	return all, since
}
