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
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/health"
)

// Servers is the knowledge of this process about the servers behind one client. All limiters over the client
// that have the same timeout share it, so that only one of them has to find out that a server is down.
type Servers struct {
	client       Client
	cluster      *redis.ClusterClient // client, if it is one; otherwise nil
	ring         *redis.Ring          // client, if it is one; otherwise nil
	options      *redis.Options       // see optionsOf; may be nil
	ctxDeadlines bool                 // whether the client ends a call at the deadline of its context; see endsWithContext

	whole         *node // the single server, a Cluster before its topology is known, or a client whose nodes are unknown
	topologyKnown atomic.Bool
	created       time.Time
	reloadedAt    atomic.Int64                     // when the topology was last reloaded because a node was down, as a time since created
	byAddr        atomic.Pointer[map[string]*node] // the nodes of a Cluster, the shards of a Ring; copied when it changes

	timeout   time.Duration // the timeout of all Stores that share the Servers
	listeners health.Listeners

	mu       sync.Mutex            // guards stores, changes of byAddr, movingSince and movingLast
	stores   []weak.Pointer[Store] // some of them may be closed or garbage-collected
	unclosed atomic.Int64          // how many Stores have not been closed, including garbage-collected ones

	// movingSince and movingLast are the times of the first and the last error of the current move of
	// hash slots: errors that are no more than movingPause apart belong to one move.
	movingSince, movingLast time.Time
}

// A node is the knowledge of this process about one server: its health, and whether one script may
// have the keys of several decisions. The server is a single one, a node of a Cluster or a shard of
// a Ring. If it is not known which servers a client has, the node in Servers.whole stands for all
// of them.
type node struct {
	addr    string
	client  weak.Pointer[redis.Client] // the client of this server; nil for a whole Cluster or Ring, and for clients that are not of go-redis
	servers *Servers
	health  *health.Monitor
	gone    atomic.Bool // whether go-redis has forgotten the server, for example because it has left the Cluster

	sharding sharding

	mu  sync.Mutex // guards key
	key string     // the user's key for probes; see noteKey
}

const (
	// assumedPoolSize is the size of the connection pool that is assumed for a client that does not
	// reveal it: a Cluster or Ring as a whole, or a client that is not go-redis's own.
	assumedPoolSize = 10
	// defaultProbeKey is the user's key of a probe until noteKey has remembered one; for a single
	// server, always. Because it begins with "~", package key replaces it by its digest, which is the
	// stored form of no other key.
	defaultProbeKey = "~probe"
)

// newNode returns the node of the server at addr. client is nil if the server has no client of its own.
func newNode(s *Servers, addr string, client *redis.Client) *node {
	n := &node{addr: addr, servers: s, key: defaultProbeKey}
	pool := assumedPoolSize
	if client != nil {
		n.client, pool = weak.Make(client), client.Options().PoolSize
	}
	n.health = health.NewMonitor(health.Config{Timeout: s.timeout, PoolSize: pool, Prober: prober{n}, Listeners: &s.listeners})
	return n
}

// up reports whether decisions may be sent to the server.
func (n *node) up() bool { return n.health.Up() }

// awaitUp waits for the server on behalf of a call about k: see [health.Monitor.Await].
func (n *node) awaitUp(ctx context.Context, k string, timeout <-chan struct{}) bool {
	if !n.up() {
		n.noteKey(k)
	}
	return n.health.Await(ctx, timeout)
}

// noteKey remembers the user's key of a call that has failed, or that waits for the server. A probe of a
// Cluster or Ring must use a key of a hash slot that the server has. For a single server, any key will do,
// so noteKey does nothing.
func (n *node) noteKey(k string) {
	if n.servers.cluster == nil && n.servers.ring == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.key = k
}

// probeKey returns the key that noteKey remembered last, or defaultProbeKey.
func (n *node) probeKey() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.key
}

// shared contains the Servers of each pair of client and timeout. It keeps neither clients nor
// Servers alive.
var shared = struct {
	sync.Mutex

	byClient map[sharedKey]weak.Pointer[Servers]
}{byClient: make(map[sharedKey]weak.Pointer[Servers])}

// A sharedKey identifies the limiters that share a Servers. Limiters with different Timeouts do not
// share: a slow server may be down for one and up for the other.
type sharedKey struct {
	client  any // a weak pointer
	timeout time.Duration
}

// serversOf returns the Servers of client and timeout, which all limiters with both share. Two
// clients that are not of go-redis cannot be compared, so each NewStore gets a Servers of its own
// for such a client.
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

// forgetServers removes the entry of a Servers that was garbage-collected, unless a new one has replaced it.
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
	s.whole = newNode(s, addr, single)
	s.byAddr.Store(&map[string]*node{})
	return s
}

// add adds a new Store, whose Hooks are notified of outages until it closes. The Store is subscribed
// before another goroutine can find it.
func (s *Servers) add(st *Store) {
	st.subscription = s.listeners.Subscribe(&st.Hooks.ServerChanged)
	s.unclosed.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stores) == cap(s.stores) {
		s.stores = slices.DeleteFunc(s.stores, func(w weak.Pointer[Store]) bool { return w.Value() == nil })
	}
	s.stores = append(s.stores, weak.Make(st))
}

// storeClosed is called after a Store has closed. If a server is down, its Monitor then notifies
// the Store that the outage is over for that Store, and stops probing if no Store is open.
func (s *Servers) storeClosed() {
	s.whole.health.Refresh()
	for _, n := range *s.byAddr.Load() {
		n.health.Refresh()
	}
}

// openStores returns the Stores that are neither closed nor garbage-collected.
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

// anOpenStore returns a Store with which a server can be probed, or nil. Any Store will do, because the
// server of a user's key is the same for all Stores.
func (s *Servers) anOpenStore() *Store {
	if open := s.openStores(); len(open) > 0 {
		return open[0]
	}
	return nil
}

// of returns the server that has the Redis keys of the user's key k in st, or s.whole if that is not known.
func (s *Servers) of(ctx context.Context, st *Store, k string) *node {
	var client *redis.Client
	switch {
	case s.cluster != nil && s.topologyKnown.Load(): // before that, MasterForKey would make a call to the Cluster
		client, _ = s.cluster.MasterForKey(ctx, st.slotKey(k))
	case s.ring != nil:
		client, _ = s.ring.GetShardClientForKey(st.slotKey(k))
	}
	if client == nil {
		return s.whole
	}
	addr := client.Options().Addr
	if n := (*s.byAddr.Load())[addr]; n != nil {
		return n
	}
	return s.addNode(addr, client)
}

// probeClient returns the client with which to probe n. moved says that another server now has the
// keys of k. probeClient may make a call to a Cluster, so only background goroutines may call it.
func (s *Servers) probeClient(ctx context.Context, n *node, st *Store, k string) (client Client, moved bool) {
	var owner *redis.Client
	var err error
	switch {
	case s.ring != nil:
		owner, err = s.ring.GetShardClientForKey(st.slotKey(k))
	case s.cluster != nil:
		s.reloadTopology(ctx)
		if owner, err = s.cluster.MasterForKey(ctx, st.slotKey(k)); err == nil {
			s.topologyKnown.Store(true)
		}
	}
	switch known := n.client.Value(); {
	case s.ring == nil && s.cluster == nil:
		return s.client, false
	case err == nil && owner.Options().Addr != n.addr:
		return nil, true
	case known == nil:
		return s.client, false
	default:
		return known, false
	}
}

// reloadTopology makes go-redis read the topology of a Cluster again while a node is down, at most once per
// reloadPause. By itself, go-redis would read it once per minute by default. reloadTopology does not use
// ReloadState, of which only one can run at a time: if a node hangs, ReloadState would block all reading of
// the topology until the ReadTimeout of go-redis. Each ForEachMaster reads the topology independently.
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

// addNode returns the node of a server. It makes the node if there is none yet, and forgets it when
// go-redis forgets the server's client.
func (s *Servers) addNode(addr string, client *redis.Client) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.byAddr.Load()
	if n := old[addr]; n != nil {
		return n
	}
	n := newNode(s, addr, client)
	next := maps.Clone(old)
	next[addr] = n
	s.byAddr.Store(&next)
	w := weak.Make(s)
	runtime.AddCleanup(client, func(addr string) {
		if s := w.Value(); s != nil {
			s.forget(addr)
		}
	}, addr)
	return n
}

// forget removes the node at addr, and marks it as gone, so that Stores forget its batchers.
func (s *Servers) forget(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(*s.byAddr.Load())
	if n := next[addr]; n != nil {
		n.gone.Store(true)
	}
	delete(next, addr)
	s.byAddr.Store(&next)
}

// reloadPause is the minimum time between two readings of a Cluster's topology because of a failed node.
const reloadPause = time.Second

// Servers returns the state of each server behind the client, as far as this process knows.
func (s *Store) Servers() []coreaccess.ServerState {
	servers := slices.SortedFunc(maps.Values(*s.servers.byAddr.Load()), func(a, b *node) int { return strings.Compare(a.addr, b.addr) })
	if len(servers) == 0 || !s.servers.whole.up() {
		servers = append(servers, s.servers.whole)
	}
	states := make([]coreaccess.ServerState, len(servers))
	for i, n := range servers {
		seen := n.health.Snapshot()
		states[i] = coreaccess.ServerState{Addr: n.addr, State: seen.State.String(), Since: seen.Since, Cause: seen.Cause}
	}
	return states
}
