package server

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A BreakerState is what a circuit breaker does: closed, the server is asked; open,
// it is not; half-open, a probe asks whether it answers again.
type BreakerState uint8

// The states.
const (
	BreakerClosed BreakerState = iota
	BreakerHalfOpen
	BreakerOpen
)

func (s BreakerState) String() string { return [...]string{"closed", "half-open", "open"}[s] }

const (
	// The pause between two probes of a server grows from firstPause to longestPause.
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
	// Probes end when no decision has wanted the server for idleAfter, or for the
	// pause between probes if that is longer.
	idleAfter = time.Second
	// probePatience is how long a probe waits at least.
	probePatience = 500 * time.Millisecond
	// probeTurns is how often the goroutines of a probe have to wait for a processor at
	// most, with a new connection to make.
	probeTurns = 20
	// tolerated is how many errors in a row do not open the breaker. A single timeout
	// opens it, and so does an error that leaves no doubt.
	tolerated = 2
	// forAll is longer than any timeout.
	forAll = time.Duration(math.MaxInt64 / 4)
)

// A Server is what is known of one server: the circuit breaker to it, and whether a script
// may have the keys of several decisions.
//
// A server that did not answer within some time is down for all callers that would
// wait for at most twice as long: callers share what is known, but not their
// patience. A more patient caller still asks it. While the server is down no other
// decision asks it: a goroutine probes it in the background, as long as decisions
// want it.
type Server struct {
	addr    string
	servers *Servers
	gone    atomic.Bool // it is no longer part of the Cluster

	sharding sharding

	downFor     atomic.Int64 // it did not answer within this time; 0 if it is up
	failures    atomic.Int32 // in a row
	wantedAt    atomic.Int64 // when a decision last wanted it while it was down, since started
	recoveredAt atomic.Int64 // when it was last found up again, since started
	announced   atomic.Bool  // that it is down: probes come after that
	probing     atomic.Bool

	mu   sync.Mutex
	stop context.CancelFunc // of the probes
}

var started = time.Now()

func newServer(s *Servers, addr string) *Server {
	sv := &Server{addr: addr, servers: s}
	sv.recoveredAt.Store(math.MinInt64)
	return sv
}

// up reports whether callers that would wait so long may ask the server.
func (sv *Server) up(patience time.Duration) bool {
	down := sv.downFor.Load()
	return down == 0 || int64(patience) > 2*down
}

// want notes that st wanted a decision on k while the server is down, and has it
// probed.
func (sv *Server) want(st *Store, k string) {
	sv.wantedAt.Store(int64(time.Since(started)))
	if !sv.probing.Load() && (sv.downFor.Load() == 0 || sv.announced.Load()) {
		sv.probe(st, k)
	}
}

// succeeded records a call that the server answered.
func (sv *Server) succeeded() {
	if sv.failures.Load() != 0 {
		sv.failures.Store(0)
	}
}

// failed records a call of st on k that the server did not answer well.
func (sv *Server) failed(ctx context.Context, st *Store, k string, f *failure) {
	switch {
	case f.ignore, f.partly, f.begun.Sub(started) < time.Duration(sv.recoveredAt.Load()): // it has recovered since
		return
	case f.late: // this process was too busy to see the answer in time, or there was none
	case f.certain:
		sv.down(ctx, st, f.err, forAll)
	case f.timeout:
		sv.down(ctx, st, f.err, f.given)
	case sv.failures.Add(1) > tolerated:
		sv.down(ctx, st, f.err, forAll)
	default:
		return
	}
	sv.want(st, k)
}

// down records that the server is down for callers that wait no longer than d.
func (sv *Server) down(ctx context.Context, st *Store, cause error, d time.Duration) {
	for {
		before := sv.downFor.Load()
		if before >= int64(d) {
			return
		}
		if sv.downFor.CompareAndSwap(before, int64(d)) {
			if before == 0 {
				sv.notify(ctx, st, BreakerClosed, BreakerOpen, cause)
				sv.announced.Store(true)
			}
			return
		}
	}
}

// notify tells all stores of the client of a change, which by noticed.
func (sv *Server) notify(ctx context.Context, by *Store, from, to BreakerState, cause error) {
	for _, st := range sv.servers.subscribers(by) {
		if st.hooks.BreakerChange != nil {
			st.hooks.BreakerChange(ctx, Change{Server: sv.addr, From: from, To: to, Cause: cause, Log: st == by})
		}
	}
}

// probe starts to probe the server in the background, with keys of st that are in
// the hash slot of k, unless that is under way.
func (sv *Server) probe(st *Store, k string) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.probing.Load() {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	sv.probing.Store(true)
	sv.stop = stop
	go sv.runProbes(ctx, stop, st, k)
}

func (sv *Server) stopProbes() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.stop != nil {
		sv.stop()
	}
}

// runProbes probes the server until it is up, or no decision wants it any more.
func (sv *Server) runProbes(ctx context.Context, stop context.CancelFunc, st *Store, k string) {
	defer stop()
	defer sv.probing.Store(false)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if sv.probeOnce(ctx, st, k) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if idle := time.Since(started) - time.Duration(sv.wantedAt.Load()); idle > max(pause, idleAfter) {
			return
		}
	}
}

// probeOnce asks the server once, and reports whether it is up.
func (sv *Server) probeOnce(ctx context.Context, st *Store, k string) bool {
	isDown := sv.downFor.Load() != 0
	if isDown {
		sv.notify(ctx, st, BreakerOpen, BreakerHalfOpen, nil)
	}
	begun := time.Now()
	patience := max(st.timeout, probePatience)
	if isDown && sv.servers.learnTopology(ctx, sv, st, k) {
		sv.recovered(ctx, st)
		return true // each node has a Server of its own from now on
	}
	f := st.probe(ctx, k, patience)
	if f != nil && f.late && ctx.Err() == nil { // in a busy process a reply takes longer to be seen
		begun = time.Now()
		f = st.probe(ctx, k, max(4*patience, probeTurns*schedulingDelay()))
	}
	took := time.Since(begun)
	switch {
	case ctx.Err() != nil:
	case f == nil && (!isDown || took < time.Duration(sv.downFor.Load())):
		sv.failures.Store(0)
		if isDown {
			sv.recovered(ctx, st)
		}
		return true
	case f != nil && f.ignore:
	case f != nil && f.timeout:
		sv.down(ctx, st, f.err, f.given)
	case f != nil:
		sv.down(ctx, st, f.err, forAll)
	}
	if isDown {
		sv.notify(ctx, st, BreakerHalfOpen, BreakerOpen, nil)
	}
	return false
}

// recovered records that a probe found the server up again.
func (sv *Server) recovered(ctx context.Context, st *Store) {
	sv.recoveredAt.Store(int64(time.Since(started)))
	sv.announced.Store(false)
	sv.notify(ctx, st, BreakerHalfOpen, BreakerClosed, nil)
	sv.downFor.Store(0)
}
