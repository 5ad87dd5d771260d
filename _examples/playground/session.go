package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

const (
	queued    = 8192                   // how many events may wait for a page
	peekEvery = 200 * time.Millisecond // how often the levels are read
	tooLate   = 250 * time.Millisecond // a request of the traffic that is late by more than this is left out
)

var errSlow = errors.New("the page reads events too slowly")

// A session is the simulation behind one open page. It ends with the
// page's stream of events.
type session struct {
	id      string
	backend *backend
	clock   func() time.Time // returns the time of Redis's clock
	past    []event          // the events of the traffic before live
	live    time.Time        // when the live traffic begins
	start   time.Time        // the beginning of the first window of the live traffic
	events  chan event
	hand    chan handHit
	change  chan struct{}           // signals a new configuration
	end     context.CancelCauseFunc // cancels the context of run
	tasks   sync.WaitGroup

	mu     sync.Mutex
	config config
	lanes  []*lane
	away   bool // whether the limiters have noticed that Redis does not answer
}

// A handHit is a request by hand for all lanes except one, which answers the request itself.
type handHit struct {
	client string
	but    *lane // the lane that answers the request itself, or nil
}

// newSession connects to a Redis like shared, or, if shared is nil, to an embedded one. The
// caller must close the session.
func newSession(ctx context.Context, shared redis.UniversalClient, timeout time.Duration, c config, end context.CancelCauseFunc) (*session, error) {
	s := &session{
		id: rand.Text(), events: make(chan event, queued),
		hand: make(chan handHit, maxTraffic), change: make(chan struct{}, 1), end: end,
	}
	var err error
	if s.backend, err = connect(shared, timeout); err != nil {
		return nil, err
	}
	if s.clock, err = s.backend.clock(ctx); err == nil {
		s.begin()
		if s.backend.embedded != nil {
			s.past, s.live, err = playPast(ctx, s.backend, s.id, c, s.start, s.clock)
		}
	}
	if err == nil {
		err = s.set(c)
	}
	if err == nil && len(s.past) > 0 {
		warm(ctx, s.backend, c, s.lanes, s.live, s.start)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// begin sets the beginning of the live traffic to the current time.
func (s *session) begin() {
	s.live = s.clock()
	s.start = firstWindow(s.live)
}

func (s *session) close() {
	_, lanes := s.current()
	closeLanes(lanes)
	s.backend.close()
}

// set makes the lanes for a configuration. The limiters have the same names as before,
// so units that were used stay used.
func (s *session) set(c config) error {
	lanes, err := newLanes(s.backend, s.id, c, s.clock, func(_ hit, d decision) { s.emit(d) }, core.Observe(s.watch))
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.lanes
	s.config, s.lanes = c, lanes
	s.mu.Unlock()
	closeLanes(old)
	return nil
}

func (s *session) current() (config, []*lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config, s.lanes
}

// watch sends an event to the page when the limiters notice that Redis has stopped, and when
// it answers again. All limiters notice it at once, except those of the processes, which have clients of their own and are ignored.
func (s *session) watch(_ context.Context, e core.Event) {
	away := e.Kind == core.EventFallbackOn
	if !away && e.Kind != core.EventFallbackOff || e.Limiter == oneRedis {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away == away {
		return
	}
	s.away = away
	state := "over"
	if away {
		state = "noticed"
	}
	s.emit(outage{state, millis(s.clock())})
}

// stop stops Redis for this session, or starts it again.
func (s *session) stop(stopped bool) {
	if s.backend.link.isCut() == stopped {
		return
	}
	state := "started"
	if stopped {
		state = "stopped"
	}
	s.emit(outage{state, millis(s.clock())}) // first, so that the page does not receive "noticed" before
	s.backend.link.set(stopped)
}

// emit sends an event to the page. It must not block, because it is called during
// decisions.
func (s *session) emit(e event) {
	select {
	case s.events <- e:
	default:
		s.end(errSlow) // the page then opens a new session
	}
}

// run plays the traffic until ctx ends. It returns when all goroutines of the session have ended.
func (s *session) run(ctx context.Context) error {
	defer s.tasks.Wait()
	defer s.end(nil)

	c, lanes := s.current()
	start := hello{ID: s.id, Period: float64(period.Milliseconds()), Config: c, At: millis(s.clock())}
	for _, l := range lanes {
		if l.member <= 1 { // the processes are drawn in one chart
			start.Lanes = append(start.Lanes, l.described())
		}
	}
	s.emit(start)
	since := s.live
	if len(s.past) > 0 {
		since = since.Add(-shown)
	}
	s.report(c, lanes, since)
	for _, e := range s.past {
		s.emit(e)
	}
	s.past = nil
	s.tasks.Go(func() { s.peek(ctx) })
	for ctx.Err() == nil {
		s.play(ctx)
		c, lanes = s.current()
		s.begin()
		s.report(c, lanes, s.live)
	}
	return context.Cause(ctx)
}

// report sends a configuration to the page, and the code of its limits.
func (s *session) report(c config, lanes []*lane, since time.Time) {
	e := changed{Config: c, At: millis(since), Code: make(map[string]string, len(lanes))}
	for _, l := range lanes {
		e.Code[l.name] = l.program()
	}
	s.emit(e)
}

// play plays the traffic of the current configuration until the configuration changes or ctx ends.
func (s *session) play(ctx context.Context) {
	c, lanes := s.current()
	start, live := s.start, s.live
	traffic, stop := context.WithCancel(ctx)
	defer stop()
	for group, t := range streams(c, lanes) {
		s.tasks.Go(func() {
			n := 0 // how many requests the processes have received
			for a := range t.traffic(traffic, start, live, s.clock) {
				switch group {
				case leases: // one after the other, because nearly all decisions are made in this process
					t.lanes[0].decide(ctx, a.client)
				case processes:
					turn := n
					n++
					s.tasks.Go(func() { decideInTurn(withHit(ctx, hit{a.client, "traffic"}), t.lanes, turn, a.client) })
				default:
					s.send(ctx, hit{a.client, "traffic"}, t.lanes, nil)
				}
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.change:
			return
		case h := <-s.hand:
			s.send(ctx, hit{h.client, "hand"}, lanes, h.but)
		}
	}
}

// send sends a request to several lanes at the same time, except to the lane but.
func (s *session) send(ctx context.Context, h hit, lanes []*lane, but *lane) {
	for _, l := range lanes {
		if !l.answers() || but != nil && l.name == but.name {
			continue
		}
		s.tasks.Go(func() {
			s.emit(l.answer(ctx, h))
		})
	}
}

// peek sends the levels of the lanes to the page at regular intervals.
func (s *session) peek(ctx context.Context) {
	tick := time.NewTicker(peekEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c, lanes := s.current()
		for _, client := range c.clients() {
			s.emit(levelsOf(ctx, client, lanes))
		}
		for _, l := range lanes {
			if l.group == leases {
				e := l.counter.take()
				e.Lane, e.At = l.name, millis(s.clock())
				s.emit(e)
			}
		}
	}
}

// levelsOf reads the levels of a client in the lanes that have one. While Redis does not answer,
// only FailLocal counts.
func levelsOf(ctx context.Context, client string, lanes []*lane) levels {
	e := levels{Client: client, Levels: make(map[string]level, len(lanes))}
	for _, l := range lanes {
		if l.group == leases { // Peek would call Redis, which leases avoid
			continue
		}
		r, err := l.limiter.Peek(ctx, keyOf(client))
		if err != nil || r.Limit == 0 {
			continue
		}
		now := level{At: millis(r.At), Banned: banned(r)}
		now.Used, now.Also = l.used(r)
		if !byRedis(r) {
			now.At = millis(l.clock())
			if l.member > 1 { // each process has a count of its own, and the chart shows the sum
				now.Used += e.Levels[l.name].Used
			}
		}
		e.Levels[l.name] = now
	}
	return e
}

// pass passes a request by hand to the session. It returns false if too many such requests wait.
func (s *session) pass(h handHit) bool {
	select {
	case s.hand <- h:
		return true
	default:
		return false
	}
}
