package redisstore

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/health"
	"github.com/redislimit/redislimit/internal/hook"
)

// Servers is what this process knows of the servers behind one client. All limiters over the client
// share it, so that a server that is down is found out once.
type Servers struct {
	client       Client
	cluster      *redis.ClusterClient // or nil
	ring         *redis.Ring          // or nil
	options      *redis.Options       // see optionsOf; or nil
	ctxDeadlines bool                 // the client itself ends a call with its context

	whole         *Server // a single server, a Cluster before its topology is known, or what go-redis does not tell nodes of
	topologyKnown atomic.Bool
	created       time.Time
	reloadedAt    atomic.Int64                       // when the topology was last reloaded because a node was down; since created
	byAddr        atomic.Pointer[map[string]*Server] // the nodes of a Cluster, the shards of a Ring; copied when it changes

	timeout   time.Duration // of all Stores
	listeners health.Listeners

	mu     sync.Mutex
	stores []weak.Pointer[Store] // of which some may be closed

	// movingSince and movingLast are the times of the first and the last error of the current move of
	// hash slots: errors that are no more than movingPause apart belong to one move.
	movingSince, movingLast time.Time
}

// A Server is what this process knows of one server: its health, and whether a script may have the keys
// of several decisions.
type Server struct {
	addr    string
	node    weak.Pointer[redis.Client] // or nil, where the client itself is asked
	servers *Servers
	health  *health.Monitor
	gone    atomic.Bool // it is no longer part of the Cluster

	sharding sharding

	mu  sync.Mutex
	key string // see noteKey
}

const (
	// poolOfOthers is how many connections a client is assumed to have that does not say so: a Cluster or
	// Ring as a whole, and a client that is not go-redis's own.
	poolOfOthers = 10
	// anyKey is the key that a probe uses while no key of the server is known.
	anyKey = "~probe"
)

func newServer(s *Servers, addr string, node *redis.Client) *Server {
	sv := &Server{addr: addr, servers: s, key: anyKey}
	pool := poolOfOthers
	if node != nil {
		sv.node, pool = weak.Make(node), node.Options().PoolSize
	}
	sv.health = health.NewMonitor(health.Config{Timeout: s.timeout, PoolSize: pool, Prober: prober{sv}, Listeners: &s.listeners})
	return sv
}

// up reports whether decisions are sent to the server.
func (sv *Server) up() bool { return sv.health.Up() }

// await waits for the server on behalf of a decision on k: see [health.Monitor.Await].
func (sv *Server) await(ctx context.Context, k string, until <-chan struct{}) bool {
	if !sv.up() {
		sv.noteKey(k)
	}
	return sv.health.Await(ctx, until)
}

// noteKey remembers the user's key of the last decision that needed the server, so that a probe uses a
// key of the same hash slot. A single server has all hash slots.
func (sv *Server) noteKey(k string) {
	if sv.servers.cluster == nil && sv.servers.ring == nil {
		return
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.key = k
}

// probeKey returns the key that noteKey remembered last.
func (sv *Server) probeKey() string {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.key
}

// shared has the Servers of each client and Timeout. It keeps neither alive.
var shared = struct {
	sync.Mutex

	byClient map[sharedKey]weak.Pointer[Servers]
}{byClient: make(map[sharedKey]weak.Pointer[Servers])}

// A sharedKey is who shares what is known of servers. Limiters with another Timeout find out by
// themselves: what is down for one may be up for another.
type sharedKey struct {
	client  any // a weak pointer
	timeout time.Duration
}

// serversOf returns the Servers of client. Of clients that are not go-redis's own nothing is known
// that could tell two of them apart: each call gets its own.
func serversOf(client Client, timeout time.Duration) *Servers {
	key := sharedKey{timeout: timeout}
	switch c := client.(type) {
	case *redis.Client:
		key.client = weak.Make(c)
	case *redis.ClusterClient:
		key.client = weak.Make(c)
	case *redis.Ring:
		key.client = weak.Make(c)
	default:
		return newServers(client, timeout)
	}
	shared.Lock()
	defer shared.Unlock()
	if s := shared.byClient[key].Value(); s != nil {
		return s
	}
	s := newServers(client, timeout)
	shared.byClient[key] = weak.Make(s)
	runtime.AddCleanup(s, forgetServers, key)
	return s
}

// forgetServers removes the entry of Servers that are no longer used.
func forgetServers(key sharedKey) {
	shared.Lock()
	defer shared.Unlock()
	if shared.byClient[key].Value() == nil {
		delete(shared.byClient, key)
	}
}

func newServers(client Client, timeout time.Duration) *Servers {
	s := &Servers{client: client, timeout: timeout, created: time.Now()}
	addr, single := "", (*redis.Client)(nil)
	switch c := client.(type) {
	case *redis.Client:
		single, addr = c, c.Options().Addr
	case *redis.ClusterClient:
		s.cluster = c
	case *redis.Ring:
		s.ring = c
	}
	s.options = optionsOf(client)
	s.ctxDeadlines = endsWithContext(s.options)
	s.whole = newServer(s, addr, single)
	s.byAddr.Store(&map[string]*Server{})
	return s
}

// add notes a new Store, whose Hooks are notified of outages until it closes. It is subscribed before
// another goroutine can find it.
func (s *Servers) add(st *Store) {
	st.subscription = s.listeners.Subscribe(&st.Hooks.ServerChanged)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stores) == cap(s.stores) {
		s.stores = slices.DeleteFunc(s.stores, func(w weak.Pointer[Store]) bool { return w.Value() == nil })
	}
	s.stores = append(s.stores, weak.Make(st))
}

// storeClosed makes each server notify a Store that has closed, and stop probing once none is open.
func (s *Servers) storeClosed() {
	s.whole.health.Refresh()
	for _, sv := range *s.byAddr.Load() {
		sv.health.Refresh()
	}
}

// openStores returns the Stores that are not closed.
func (s *Servers) openStores() []*Store {
	var open []*Store
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.stores {
		if st := w.Value(); st != nil && !st.closed() {
			open = append(open, st)
		}
	}
	return open
}

// anOpenStore returns a Store with which a server can be probed, or nil. Any Store will do: which server
// has the Redis keys of a user's key does not depend on the Store.
func (s *Servers) anOpenStore() *Store {
	if open := s.openStores(); len(open) > 0 {
		return open[0]
	}
	return nil
}

// of returns the server that has st's Redis keys of the user's key k.
func (s *Servers) of(ctx context.Context, st *Store, k string) *Server {
	var node *redis.Client
	switch {
	case s.cluster != nil && s.topologyKnown.Load(): // before that MasterForKey would make a call of its own
		node, _ = s.cluster.MasterForKey(ctx, st.slotKey(k))
	case s.ring != nil:
		node, _ = s.ring.GetShardClientForKey(st.slotKey(k))
	}
	if node == nil {
		return s.whole
	}
	addr := node.Options().Addr
	if sv := (*s.byAddr.Load())[addr]; sv != nil {
		return sv
	}
	return s.addServer(addr, node)
}

// node returns the client with which to probe sv, or that another server has the keys of k now. It
// may ask a Cluster, and so is for the background only.
func (s *Servers) node(ctx context.Context, sv *Server, st *Store, k string) (client Client, moved bool) {
	var node *redis.Client
	var err error
	switch {
	case s.ring != nil:
		node, err = s.ring.GetShardClientForKey(st.slotKey(k))
	case s.cluster != nil:
		s.reloadTopology(ctx)
		if node, err = s.cluster.MasterForKey(ctx, st.slotKey(k)); err == nil {
			s.topologyKnown.Store(true)
		}
	}
	switch known := sv.node.Value(); {
	case s.ring == nil && s.cluster == nil:
		return s.client, false
	case err == nil && node.Options().Addr != sv.addr:
		return nil, true
	case known == nil:
		return s.client, false
	default:
		return known, false
	}
}

// reloadTopology has a Cluster's topology read anew while a node is down: go-redis would do so once
// a minute. Not by ReloadState: that reads once at a time, so that a node that hangs blocks it
// until go-redis's ReadTimeout, while each ForEachMaster reads by itself.
func (s *Servers) reloadTopology(ctx context.Context) {
	now := int64(time.Since(s.created))
	last := s.reloadedAt.Load()
	if s.topologyKnown.Load() && now-last >= int64(reloadPause) && s.reloadedAt.CompareAndSwap(last, now) {
		ctx = context.WithoutCancel(ctx)
		go func() {
			_ = batch.Catch(func() error { // hooks of the client may panic
				return s.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
			})
		}()
	}
}

// addServer returns a new Server for a node. It is forgotten once go-redis has forgotten the node.
func (s *Servers) addServer(addr string, node *redis.Client) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.byAddr.Load()
	if sv := old[addr]; sv != nil {
		return sv
	}
	sv := newServer(s, addr, node)
	next := maps.Clone(old)
	next[addr] = sv
	s.byAddr.Store(&next)
	w := weak.Make(s)
	runtime.AddCleanup(node, func(addr string) {
		if s := w.Value(); s != nil {
			s.forget(addr)
		}
	}, addr)
	return sv
}

func (s *Servers) forget(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.byAddr.Load())
	if sv := next[addr]; sv != nil {
		sv.gone.Store(true)
	}
	delete(next, addr)
	s.byAddr.Store(&next)
}

// reloadPause is the time between two times that a Cluster's topology is read because a node is
// down.
const reloadPause = time.Second

// Servers returns how the servers behind the client are, as far as this process knows.
func (s *Store) Servers() []hook.ServerState {
	servers := slices.SortedFunc(maps.Values(*s.servers.byAddr.Load()), func(a, b *Server) int { return strings.Compare(a.addr, b.addr) })
	if len(servers) == 0 || !s.servers.whole.up() {
		servers = append(servers, s.servers.whole)
	}
	states := make([]hook.ServerState, len(servers))
	for i, sv := range servers {
		seen := sv.health.Snapshot()
		states[i] = hook.ServerState{Addr: sv.addr, State: seen.State.String(), Since: seen.Since, Cause: seen.Cause}
	}
	return states
}
