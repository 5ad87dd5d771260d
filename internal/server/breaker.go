package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
)

// A Server is what is known of one server: the circuit breaker to it, whether it is far, and
// whether a script may have the keys of several decisions.
type Server struct {
	addr    string
	node    weak.Pointer[redis.Client] // or nil, where the client itself is asked
	servers *Servers
	gone    atomic.Bool // it is no longer part of the Cluster

	sharding sharding

	state atomic.Uint32 // health.state
	// far is whether a new connection may take longer than the Timeout: then a call goes on when
	// its caller has left. A new server is far until it has answered within a tenth of the Timeout.
	far      atomic.Bool
	wantedAt atomic.Int64 // health.wantedAt as want last noted it
	wakeAt   atomic.Int64 // health.wakeAt

	mu       sync.Mutex
	health   health
	wanting  weak.Pointer[Store] // the last that wanted it
	key      string              // and for which key
	attended bool                // by a goroutine: while it is not up, and some Store is open to probe it with
	changed  chan struct{}       // closed when health.state changes
	wake     chan struct{}       // has something for that goroutine to look at

	// Of the goroutine that attends alone: who was told that the server is down, and is to be told
	// of the end; and Servers.changes of then.
	told   []weak.Pointer[Hooks]
	toldOf uint64
}

var started = time.Now()

func sinceStarted(t time.Time) time.Duration { return t.Sub(started) }

const (
	// farFactor is how many round trips a first decision may take: a connection, HELLO, the script.
	// So a server is near that answers within that part of the Timeout, and one that is far is
	// given so many Timeouts.
	farFactor = 10
	// wantedPause is the time in which one decision notes for all that the server is wanted.
	wantedPause = 20 * time.Millisecond
	// poolOfOthers is how many connections a client may have that does not say so: a Cluster or
	// Ring as a whole, and what is none of go-redis's.
	poolOfOthers = 10
)

func newServer(s *Servers, addr string, node *redis.Client) *Server {
	sv := &Server{addr: addr, servers: s, changed: make(chan struct{}), wake: make(chan struct{}, 1)}
	sv.health = health{cold: true, pool: poolOfOthers}
	if node != nil {
		sv.node, sv.health.pool = weak.Make(node), node.Options().PoolSize
	}
	sv.far.Store(true)
	return sv
}

// up reports whether decisions ask the server.
func (sv *Server) up() bool { return state(sv.state.Load()) == up }

// recordReply takes a call for d that was begun at an instant, and answered.
func (sv *Server) recordReply(st *Store, begun time.Time, d *Call) {
	if sv.up() && !sv.far.Load() {
		return
	}
	now := time.Now()
	o := answered
	switch took := now.Sub(begun); {
	case took > st.Timeout:
		o = slow
	case took*farFactor <= st.Timeout:
		sv.far.Store(false)
	}
	if d.wrote() {
		sv.record(st, d.Key, o, begun, nil)
	}
}

// record takes what the end of a call of st on k says.
func (sv *Server) record(st *Store, k string, o outcome, begun time.Time, cause error) {
	sv.update(st, k, func(h *health, now time.Duration) { h.record(o, sinceStarted(begun), now, cause) })
}

// update changes the health, and has the server attended to if it is not up.
func (sv *Server) update(st *Store, k string, change func(h *health, now time.Duration)) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	before := sv.health.state
	change(&sv.health, sinceStarted(time.Now()))
	if st != nil && k != "" {
		sv.wanting, sv.key = weak.Make(st.stores[0]), k
	}
	sv.publishLocked(before)
	sv.lookLocked()
}

// lookLocked has the server attended to if it is not up, and whoever attends look at what has
// changed.
func (sv *Server) lookLocked() {
	if sv.health.state == up {
		return
	}
	if !sv.attended {
		sv.attended = true
		go sv.attend()
	}
	select {
	case sv.wake <- struct{}{}:
	default:
	}
}

// publishLocked tells who waits that the state is no longer that before.
func (sv *Server) publishLocked(before state) {
	if sv.health.state != before {
		sv.state.Store(uint32(sv.health.state))
		close(sv.changed)
		sv.changed = make(chan struct{})
	}
}

// want notes that a decision of st on k wants the server, which is not up. It returns how long that
// may wait, and for what.
func (sv *Server) want(st *Store, k string) (time.Duration, <-chan struct{}) {
	if state(sv.state.Load()) == down {
		now := int64(sinceStarted(time.Now()))
		if now < sv.wantedAt.Load()+int64(wantedPause) && now > sv.wakeAt.Load()+int64(wakePause) {
			return 0, nil // noted already
		}
	}
	var left time.Duration
	var changed <-chan struct{}
	sv.update(st, k, func(h *health, now time.Duration) {
		left, changed = h.wanted(now), sv.changed
		sv.wantedAt.Store(int64(h.wantedAt))
		sv.wakeAt.Store(int64(h.wakeAt))
	})
	return left, changed
}

// await waits while the server is doubted or back, and for a moment where it has not been wanted
// for a while, but not after until is closed. It reports whether the server is up.
func (sv *Server) await(ctx context.Context, st *Store, k string, until <-chan struct{}) bool {
	for !sv.up() {
		left, changed := sv.want(st, k)
		if left <= 0 {
			return sv.up()
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-until:
		case <-ctx.Done():
		}
		timer.Stop()
		if isClosed(until) || ctx.Err() != nil {
			return false
		}
	}
	return true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// say tells of an outage. Of the limiters over the client all are told when it begins and ends, and
// one of them logs that.
func (sv *Server) say(ctx context.Context, st *Store, k string, do action) {
	sv.mu.Lock()
	c := Change{Kind: StillDown, Cause: sv.health.cause, Lasted: sinceStarted(time.Now()) - sv.health.wentDown, Log: sv.health.logged}
	sv.mu.Unlock()
	if do != sayBack {
		c.Server = sv.address(ctx, c.Cause)
		st.Hooks.notify(ctx, c)
		return
	}
	c.Kind, c.Cause = CameBack, nil
	if _, moved := sv.servers.node(ctx, sv, st, k); moved && sv != sv.servers.whole {
		c.Kind = Replaced
	}
	c.Server = sv.address(ctx, nil) // behind Sentinel another one than went down
	for _, w := range sv.told {
		if told := w.Value(); told != nil {
			told.notify(ctx, c)
			c.Log = false
		}
	}
	sv.told = nil
	sv.update(nil, "", (*health).said)
}

// tell has those told that the server is down who do not know it yet, st first if it is not nil.
// Those who knew it and have closed since are told that it is over for them.
func (sv *Server) tell(ctx context.Context, st *Store) {
	sv.mu.Lock()
	c := Change{Cause: sv.health.cause, Log: sv.health.logged && len(sv.told) == 0}
	end := Change{Kind: CameBack, Lasted: sinceStarted(time.Now()) - sv.health.wentDown}
	sv.mu.Unlock()
	c.Server = sv.address(ctx, c.Cause)
	end.Server = c.Server
	know := make(map[*Hooks]bool, len(sv.told))
	for _, w := range sv.told {
		know[w.Value()] = true
	}
	sv.told = nil
	for _, other := range sv.servers.subscribers(st) {
		if !know[other] {
			other.notify(ctx, c)
			c.Log = false
		}
		delete(know, other)
		sv.told = append(sv.told, weak.Make(other))
	}
	for gone := range know {
		gone.notify(ctx, end)
	}
}

// failoverAddr is what go-redis says is the address of Sentinel's master.
const failoverAddr = "FailoverClient"

// address returns the server's address, or that of Sentinel's master as its error or a new
// connection has it.
func (sv *Server) address(ctx context.Context, cause error) string {
	node := sv.node.Value()
	if sv.addr != failoverAddr || node == nil {
		return sv.addr
	}
	var op *net.OpError
	if !errors.As(cause, &op) || op.Addr == nil {
		ctx, cancel := context.WithTimeout(ctx, wakePause)
		defer cancel()
		conn, err := node.Options().Dialer(ctx, node.Options().Network, sv.addr)
		if err == nil {
			defer func() { _ = conn.Close() }()
			return conn.RemoteAddr().String()
		}
		if !errors.As(err, &op) || op.Addr == nil {
			return sv.addr
		}
	}
	return op.Addr.String()
}

// storeClosed has the goroutine that attends tell Stores that have closed, and stop once none is
// open.
func (sv *Server) storeClosed() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.lookLocked()
}
