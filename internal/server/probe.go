package server

import (
	"context"
	"io"
	"time"

	"github.com/redislimit/redislimit/internal/batch"
)

// attend does what health says, until the server is up or there is no Store to probe it with. Its
// probes end with it.
func (sv *Server) attend() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for {
		do, pause, st, k := sv.next()
		switch do {
		case rest: // from here on another goroutine may attend
			return
		case probe, probePatiently:
			go sv.probe(ctx, time.Now(), st, k, do == probePatiently)
		case sayDown:
			sv.tell(ctx, st)
		case sayCause, sayStill, sayBack:
			sv.say(ctx, st, k, do)
		case wait:
			timer := time.NewTimer(pause)
			select {
			case <-sv.wake:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// next returns what is to be done, and with what Store and key.
func (sv *Server) next() (do action, pause time.Duration, st *Store, k string) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	st = sv.wanting.Value()
	if st == nil || st.closed.Load() {
		st = sv.servers.anotherStore()
	}
	changes, before := sv.servers.changes.Load(), sv.health.state
	switch h := &sv.health; {
	case h.told && changes != sv.toldOf && (st == nil || h.state == down):
		do = sayDown
	case st == nil:
		do = rest
		if sv.servers.allClosed() {
			h.unattended(sinceStarted(time.Now()))
		}
	default:
		do, pause = h.next(sinceStarted(time.Now()))
	}
	if do == sayDown {
		sv.toldOf = changes
	}
	sv.publishLocked(before)
	sv.attended = do != rest
	return do, pause, st, sv.key
}

// probe asks the server. A connection that has to be made, or a script that the server does not
// have, may take longer than a decision may: then it asks again, which takes one round trip.
func (sv *Server) probe(ctx context.Context, begun time.Time, st *Store, k string, patiently bool) {
	patience := st.Timeout
	if patiently || sv.far.Load() && state(sv.state.Load()) == doubted {
		patience = st.farDeadlines.timeout
	}
	o, err := sv.ask(ctx, st, k, patience, true)
	if took := time.Since(begun); o == answered && took > st.Timeout {
		begun = time.Now()
		if o, err = sv.ask(ctx, st, k, st.Timeout, false); o == answered {
			sv.far.Store(true)
		}
	} else if o == answered && took*farFactor <= st.Timeout {
		sv.far.Store(false)
	}
	sv.update(nil, "", func(h *health, now time.Duration) { h.probed(patiently, o, sinceStarted(begun), now, err) })
}

// ask has the server decide on keys that nothing else uses. dial is whether it may take a
// connection beside the pool first.
func (sv *Server) ask(ctx context.Context, st *Store, k string, patience time.Duration, dial bool) (outcome, error) {
	begun := time.Now()
	err := batch.Contain(batch.Catch(func() error {
		return st.call(ctx, patience, func(ctx context.Context) error {
			client, moved := sv.servers.node(ctx, sv, st, k)
			if moved {
				return nil
			}
			if dial {
				if err := sv.dial(ctx); err != nil {
					return err
				}
			}
			return st.probe(ctx, client, k)
		})
	}))
	if err == nil {
		return answered, nil
	}
	if ctx.Err() != nil { // nobody attends to the server any more
		return unclear, err
	}
	return st.outcome(sv, st.explain(ctx, err), patience, begun)
}

// dial makes a connection of its own and closes it, where the pool has failed to make one: that
// tries but once a second after a few failures, and a name that nobody resolves keeps a place of it
// for seconds. It sends a PING, too, where the server did not answer and calls do not end in time:
// each probe would keep a connection of the pool for seconds, until there is none left.
func (sv *Server) dial(ctx context.Context) error {
	node := sv.node.Value()
	sv.mu.Lock()
	cause := sv.health.cause
	sv.mu.Unlock()
	if node == nil || !isDial(cause) && (!isTimeout(cause) || node.PoolStats().IdleConns > 0) {
		return nil
	}
	conn, err := node.Options().Dialer(ctx, node.Options().Network, node.Options().Addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if sv.servers.ctxDeadlines || !isTimeout(cause) {
		return nil
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	_, _ = io.WriteString(conn, "PING\r\n")
	if _, err = conn.Read(make([]byte, 1)); isTimeout(err) { // anything else is an answer
		return err
	}
	return nil
}
