package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

const (
	maxSessions = 16   // how many pages may be open at once: each has running limiters, and perhaps a Redis
	maxBody     = 1024 // how many bytes a configuration may have
)

// A playground serves the page, and has a session for each open page.
type playground struct {
	redis   redis.UniversalClient // nil: each page has an embedded Redis of its own
	timeout time.Duration         // of each decision
	hands   *core.Limiter         // limits how many requests the user of each page sends by hand

	mu       sync.Mutex
	pages    int // open pages, including those whose session is about to begin
	sessions map[string]*session
}

func newPlayground(client redis.UniversalClient) (*playground, error) {
	hands, err := core.NewMemory("hands", core.GCRA(core.PerSecond(40), core.Burst(maxTraffic)), core.MaxKeys(maxSessions))
	if err != nil {
		return nil, err
	}
	// The timeout is long, so that a slow reply on a busy laptop is not taken for an outage.
	return &playground{redis: client, timeout: 5 * time.Second, hands: hands, sessions: make(map[string]*session)}, nil
}

// follow serves the stream of events of a new session. The session ends with the stream.
func (p *playground) follow(w http.ResponseWriter, r *http.Request) {
	c, err := configOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !p.enter() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "The playground is open in as many pages as it can serve: close one.", http.StatusServiceUnavailable)
		return
	}
	defer p.leave()
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	s, err := newSession(ctx, p.redis, p.timeout, c, end)
	if err != nil {
		say(err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer s.close()
	p.add(s)
	defer p.remove(s)

	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := s.run(ctx); !errors.Is(err, context.Canceled) {
			say(err)
		}
	}()
	end(send(w, s.events, over))
	<-over
}

// adjust changes the configuration of a session.
func (p *playground) adjust(w http.ResponseWriter, r *http.Request) {
	s := p.session(w, r.PathValue("id"))
	if s == nil {
		return
	}
	before, _ := s.current()
	c, err := readConfig(http.MaxBytesReader(w, r.Body, maxBody), before)
	if err == nil {
		err = s.set(c)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case s.change <- struct{}{}:
	default: // an earlier change has not been read yet
	}
	w.WriteHeader(http.StatusNoContent)
}

// stop stops the Redis of a session, or starts it again.
func (p *playground) stop(w http.ResponseWriter, r *http.Request) {
	s := p.session(w, r.PathValue("id"))
	if s == nil {
		return
	}
	switch state := r.PathValue("state"); state {
	case "stop", "start":
		s.stop(state == "stop")
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "allowed are stop and start", http.StatusNotFound)
	}
}

// hit answers a request by hand with the lane in the path. The other lanes receive
// the same request, so that all lanes still have the same traffic. If the path has no lane, all
// lanes receive the request, and hit does not wait for their responses.
func (p *playground) hit(w http.ResponseWriter, r *http.Request) {
	s := p.session(w, r.URL.Query().Get("session"))
	if s == nil {
		return
	}
	client := r.Header.Get(clientHeader)
	if client != clientA && client != clientB {
		http.Error(w, clientHeader+" is not "+clientA+" or "+clientB, http.StatusBadRequest)
		return
	}
	var chosen *lane
	_, lanes := s.current()
	name := r.PathValue("lane")
	for _, l := range lanes {
		if l.name == name && l.answers() {
			chosen = l
		}
	}
	if chosen == nil && name != "" {
		http.Error(w, "no such lane", http.StatusNotFound)
		return
	}
	if allowed, err := p.hands.Allow(r.Context(), s.id); err != nil || !allowed.Allowed || !s.pass(handHit{client, chosen}) {
		http.Error(w, "too many requests by hand", http.StatusServiceUnavailable)
		return
	}
	if chosen == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	chosen.handler.ServeHTTP(w, r.WithContext(withHit(r.Context(), hit{client, "hand"})))
}

// session returns the open session called id. If there is none, it answers with 404 and returns nil.
func (p *playground) session(w http.ResponseWriter, id string) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[id]
	if s == nil {
		http.Error(w, "no such session: its page is closed", http.StatusNotFound)
	}
	return s
}

// enter counts a page that is being opened. It returns false if too many are open.
func (p *playground) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pages >= maxSessions {
		return false
	}
	p.pages++
	return true
}

func (p *playground) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pages--
}

func (p *playground) add(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions[s.id] = s
}

func (p *playground) remove(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s.id)
}
