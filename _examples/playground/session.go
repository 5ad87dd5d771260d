package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/redislimit/redislimit/core"
)

const (
	queued    = 4096                   // events that may wait for a page
	peekEvery = 100 * time.Millisecond // how often the levels are read
	tooLate   = 250 * time.Millisecond // a request of the traffic that is later than this is left out
)

var errSlow = errors.New("the page reads events too slowly")

// A session is the simulation behind one open page. It lives as long as the
// page's stream of events.
type session struct {
	id     string
	client core.Client
	events chan event
	hand   chan handHit
	change chan struct{}           // signals a new configuration
	end    context.CancelCauseFunc // cancels the context of run
	tasks  sync.WaitGroup

	mu     sync.Mutex
	config config
	lanes  []*lane
}

// A handHit is a request by hand, for all lanes but one, which serves it itself.
type handHit struct {
	client string
	but    *lane
}

func newSession(client core.Client, c config, end context.CancelCauseFunc) (*session, error) {
	s := &session{
		id: rand.Text(), client: client, events: make(chan event, queued),
		hand: make(chan handHit, maxTraffic), change: make(chan struct{}, 1), end: end,
	}
	return s, s.set(c)
}

// set makes the lanes of a configuration. The limiters have the same names as before,
// so used units stay used.
func (s *session) set(c config) error {
	lanes, err := newLanes(s.client, s.id, c, func(_ hit, d decision) { s.emit(d) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		_ = l.limiter.Close() // Close does not close the client and returns nil
	}
	s.config, s.lanes = c, lanes
	return nil
}

func (s *session) current() (config, []*lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config, s.lanes
}

// emit sends an event to the page. It never blocks, because it is called during
// decisions.
func (s *session) emit(e event) {
	select {
	case s.events <- e:
	default:
		s.end(errSlow) // the page then opens a new session
	}
}

// run plays until ctx ends, and returns when all goroutines of the session have ended.
func (s *session) run(ctx context.Context) error {
	defer s.tasks.Wait()
	defer s.end(nil)

	c, lanes := s.current()
	clock, err := redisClock(ctx, lanes[0])
	if err != nil {
		return err
	}
	start := hello{ID: s.id, Period: float64(period.Milliseconds()), Config: c, At: millis(clock())}
	for _, l := range lanes {
		start.Algorithms = append(start.Algorithms, described{l.algorithm, l.kind.Bucket, l.kind.Delays, l.kind.Aligns})
	}
	s.emit(start)
	s.tasks.Go(func() { s.peek(ctx) })
	for ctx.Err() == nil {
		s.play(ctx, clock)
	}
	return context.Cause(ctx)
}

// play plays the current configuration until it changes or ctx ends.
func (s *session) play(ctx context.Context, clock func() time.Time) {
	c, lanes := s.current()
	s.emit(changed{Config: c, At: millis(clock())})
	traffic, stop := context.WithCancel(ctx)
	defer stop()
	s.tasks.Go(func() {
		for a := range c.traffic(traffic, clock) {
			s.send(ctx, hit{a.client, "traffic"}, lanes, nil)
		}
	})
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

// send sends a request to all lanes at the same time.
func (s *session) send(ctx context.Context, h hit, lanes []*lane, but *lane) {
	for _, l := range lanes {
		if but != nil && l.algorithm == but.algorithm {
			continue
		}
		s.tasks.Go(func() {
			a := l.serve(ctx, h)
			s.emit(response{l.algorithm, h.client, h.by, a.status, a.lines(), string(a.body)})
		})
	}
}

// peek sends the levels of the lanes at regular times.
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
		s.look(ctx, clientA, lanes)
		if c.Shape == clients {
			s.look(ctx, clientB, lanes)
		}
	}
}

func (s *session) look(ctx context.Context, client string, lanes []*lane) {
	e := levels{Client: client, Levels: make(map[string]level, len(lanes))}
	for _, l := range lanes {
		r, err := l.limiter.Peek(ctx, keyOf(client))
		if err != nil {
			return
		}
		e.Levels[l.algorithm] = level{At: millis(r.At), Used: l.used(r)}
	}
	s.emit(e)
}

// redisClock returns Redis's clock, estimated from one call. The windows follow it.
func redisClock(ctx context.Context, l *lane) (func() time.Time, error) {
	asked := time.Now()
	r, err := l.limiter.Peek(ctx, keyOf(clientA))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ahead := r.At.Sub(asked.Add(now.Sub(asked) / 2))
	return func() time.Time { return time.Now().Add(ahead) }, nil
}

// pass passes a request by hand to the session. It returns false if too many wait.
func (s *session) pass(h handHit) bool {
	select {
	case s.hand <- h:
		return true
	default:
		return false
	}
}
