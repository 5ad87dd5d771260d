package httpsuite

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

// endingCases test what is charged and freed when a response has ended.
func endingCases() []testCase {
	return []testCase{{"Endings", eachEnding, nil}}
}

// A mode limits to quota, and each of its requests reserves reserved units. Handlers set the cost to realCost, or later to lateCost.
const (
	quota    = 9
	reserved = 2
	realCost = 3
	lateCost = 7
)

// A mode is how a limit charges. Every mode except the plain one charges, or frees what it holds, when the response has
// ended.
type mode struct {
	name      string
	slots     bool // requests in flight are limited
	units     bool // requests in a window are limited
	costAfter bool
	countIf   func(status int) bool
	and       bool // another limiter decides, too, with a cost of 1
}

func modes() []mode {
	failures := func(status int) bool { return status >= 400 }
	successes := func(status int) bool { return status < 400 }
	return []mode{
		{name: "Plain", units: true},
		{name: "CountIf", units: true, countIf: failures},
		{name: "CostAfter", units: true, costAfter: true},
		{name: "CostAfterCountIf", units: true, costAfter: true, countIf: successes},
		{name: "InFlight", slots: true},
		{name: "InFlightPlain", slots: true, units: true},
		{name: "InFlightCostAfterCountIf", slots: true, units: true, costAfter: true, countIf: successes},
		{name: "And", units: true, and: true},
		{name: "AndInFlight", slots: true, units: true, and: true},
		{name: "AndCostAfterCountIf", units: true, costAfter: true, countIf: successes, and: true},
	}
}

// member returns the other limiter.
func (b *testbed) member() *core.Limiter {
	return b.named("member", core.FixedWindow(core.PerMinute(quota)))
}

// limit returns a limit of the mode. No slot is renewed in the background during a test.
func (m mode) limit(b *testbed, saw *statusLog) Limit {
	var limits []core.Option
	options := []guard.Option{estimate(reserved)}
	if m.slots {
		limits = append(limits, core.InFlight(quota, core.SlotTTL(time.Hour)))
	}
	if m.units {
		limits = append(limits, core.FixedWindow(core.PerMinute(quota)))
	}
	if m.costAfter {
		options = append(options, guard.CostAfter())
	}
	if m.countIf != nil {
		options = append(options, saw.counts(m.countIf))
	}
	if m.and {
		options = append(options, guard.AlsoLimit(b.member(), keyfunc.IP(), estimate(1)))
	}
	return Limit{Limiter: b.limiter(limits...), Key: keyfunc.IP(), Options: options}
}

// left returns how many units remain of each limit while taken slots are in use and charged units are held or charged.
func (m mode) left(taken, charged int64) (left []int64) {
	if m.slots {
		left = append(left, quota-taken)
	}
	if m.units {
		left = append(left, quota-charged)
	}
	return left
}

// charged returns the units that a request with this cost and status is charged.
func (m mode) charged(cost int64, status int) int64 {
	switch {
	case m.countIf != nil && !m.countIf(status):
		return 0
	case m.costAfter:
		return cost
	}
	return reserved
}

// An ending is how a request ends.
type ending struct {
	name    string
	handler Handler
	status  int  // the status that the client gets; 0: frameworks differ
	bare    bool // the app has no error handler
	waits   bool // the handler waits for the test, which checks meanwhile what is held
	leaves  bool // the client leaves before the handler returns
	needs   Ability
}

func endings() []ending {
	late := []int64{2, lateCost}
	return []ending{
		{name: "Served", status: 200},
		{name: "Silent", handler: Handler{Do: Silent}, status: 200},
		{name: "Created", handler: Handler{Status: 201}, status: 201},
		{name: "NoContent", handler: Handler{Status: 204}, status: 204},
		{name: "Status", handler: Handler{Status: 401}, status: 401},
		{name: "FrameworkError", handler: Handler{Do: Fail, Status: 403}, status: 403},
		{name: "FrameworkError502", handler: Handler{Do: Fail, Status: 502}, status: 502},
		{name: "RenderedError", handler: Handler{Do: Throw}, status: 418},
		{name: "RenderedToNobody", handler: Handler{Do: ThrowGone}, status: 418, waits: true, leaves: true, needs: Gone},
		{name: "Error", handler: Handler{Do: Throw}, bare: true}, // with Gin, nobody answers it, and net/http sends 200
		{name: "Panic", handler: Handler{Do: Panic}, status: 500},
		{name: "PanicLate", handler: Handler{Do: PanicLate}}, // frameworks send the written part, or discard it
		{name: "NotFound", status: 404},
		{name: "Waits", handler: Handler{Do: Wait}, status: 200, waits: true},
		{name: "Stream", handler: Handler{Do: Stream}, status: 200, waits: true},
		{name: "StreamCosts", handler: Handler{Do: Stream, Later: late}, status: 200, waits: true},
		{name: "StreamLeft", handler: Handler{Do: Stream}, status: 200, waits: true, leaves: true},
		{name: "Gone", handler: Handler{Do: AwaitGone}, status: 200, waits: true, leaves: true, needs: Gone},
		{name: "Upgrade", handler: Handler{Do: Upgrade}, status: 101},
		{name: "UpgradeCosts", handler: Handler{Do: Upgrade, Later: late}, status: 101},
		{name: "HijackedThenFails", handler: Handler{Do: Inspect, Probe: hijack}, status: 101, needs: ResponseWriter},
	}
}

// hijack takes over the connection and then writes to the response, which reaches nobody and has no status.
func hijack(w http.ResponseWriter) string {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err.Error()
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nping\n")
	_ = conn.Close()
	return "too late"
}

// eachEnding ends a request in every way, in every mode. The mount point of the limit changes with the ending and with the
// mode.
func eachEnding(b *testbed) {
	points := []MountPoint{Everywhere, InGroup, OnRoute}
	for i, e := range endings() {
		for j, m := range modes() {
			point := points[(i+j)%len(points)]
			if e.status == http.StatusNotFound {
				point = Everywhere // no other mount point sees the request
			}
			b.each(fmt.Sprintf("%s/%s/%s", e.name, m.name, point), func(b *testbed) {
				b.need(e.needs)
				b.ends(e, m, point)
			})
		}
	}
}

// ends makes a request end as in e. Units are charged and slots freed once, by the status that the client gets.
func (b *testbed) ends(e ending, m mode, point MountPoint) {
	b.Helper()
	var saw statusLog
	var calls atomic.Int64
	gate, open := b.gate()
	limit := m.limit(b, &saw)
	e.handler.Gate, e.handler.Calls, e.handler.Costs = gate, &calls, []int64{realCost}
	app := mountedAt(point, limit, Route{Path: "/a", Handler: e.handler})
	app.Recover, app.Renders = true, !e.bare
	s := b.serve(app)
	b.Cleanup(open)

	status, cost := e.status, int64(realCost)
	switch {
	case e.status == http.StatusSwitchingProtocols:
		s.upgrade("/g/a", e.status)
	case e.status == http.StatusNotFound:
		status, cost = s.get("/nowhere").status, reserved
	case !e.waits:
		status = s.get("/g/a").status
	default:
		leave, done := s.start("/g/a")
		b.until("the handler runs", func() bool { return calls.Load() == 1 })
		b.wantLeftOfEach(limit.Limiter, m.left(reserved, reserved))
		if e.leaves {
			leave()
			<-done
		}
		if e.handler.Do == Stream { // the handler has not returned yet
			b.wantLeftOfEach(limit.Limiter, m.left(reserved, reserved))
		}
		open()
		if !e.leaves {
			status = (<-done).status
		}
	}
	if e.status != 0 && status != e.status {
		b.Errorf("got status %d, want %d", status, e.status)
	}
	if e.handler.Later != nil {
		cost = lateCost
	}
	unanswered := e.bare && status == http.StatusOK
	if unanswered { // the request counts, and CountIf is not called
		m.countIf = nil
	}
	want := m.left(0, m.charged(cost, status))
	b.untilLeftOfEach(limit.Limiter, want)
	s.close()
	b.wantLeftOfEach(limit.Limiter, want)
	if m.and {
		b.untilLeft(b.member(), ipKey, quota-min(1, m.charged(cost, status)))
	}
	switch {
	case unanswered:
		saw.want(b)
	case m.countIf != nil:
		saw.want(b, status)
	}
}

func (b *testbed) wantLeftOfEach(lim *core.Limiter, want []int64) {
	b.Helper()
	if got := limits.Left(b, lim, ipKey); !slices.Equal(got, want) {
		b.Errorf("of the limits %d units remain, want %d", got, want)
	}
}

// untilLeftOfEach waits until a response that has ended is settled.
func (b *testbed) untilLeftOfEach(lim *core.Limiter, want []int64) {
	b.Helper()
	b.until(fmt.Sprintf("%d units remain of the limits", want), func() bool { return slices.Equal(limits.Left(b, lim, ipKey), want) })
}

// A statusLog records the statuses with which a CountIf was called.
type statusLog struct {
	mu       sync.Mutex
	statuses []int
}

// counts returns a CountIf that records each status and then calls counted.
func (s *statusLog) counts(counted func(status int) bool) guard.Option {
	return guard.CountIf(func(status int) bool {
		s.add(status)
		return counted(status)
	})
}

func (s *statusLog) add(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses = append(s.statuses, status)
}

// all returns the statuses.
func (s *statusLog) all() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.statuses)
}

// want checks, after the server was closed, that CountIf was called with these statuses, once each. An adapter may call it
// as late as at the end of the request's context.
func (s *statusLog) want(b *testbed, statuses ...int) {
	b.Helper()
	b.until("CountIf is called", func() bool { return len(s.all()) >= len(statuses) })
	got := s.all()
	if !slices.Equal(got, statuses) {
		b.Errorf("CountIf was called with %v, want the client's statuses %v", got, statuses)
	}
}
