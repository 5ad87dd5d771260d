package server

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
)

// Servers is what this process knows of the servers behind one client. All limiters
// over the client share it, so that a server that is down is found out once.
type Servers struct {
	client       Client
	cluster      *redis.ClusterClient // or nil
	ring         *redis.Ring          // or nil
	ctxDeadlines bool                 // the client itself ends a call with its context

	whole         *Server // a single server, or a Cluster before its topology is known
	topologyKnown atomic.Bool
	byAddr        atomic.Pointer[map[string]*Server] // the nodes of a Cluster, the shards of a Ring; copied when it changes

	mu     sync.Mutex
	stores []weak.Pointer[Store] // those to notify
	open   int                   // of the stores, those not closed
}

// shared has the Servers of each client. It keeps neither alive.
var shared struct {
	sync.Mutex
	byClient map[any]weak.Pointer[Servers] // by a weak pointer to the client
}

// serversOf returns the Servers of client. Of clients that are not go-redis's own
// nothing is known that could tell two of them apart: each call gets its own.
func serversOf(client Client) *Servers {
	switch c := client.(type) {
	case *redis.Client:
		return sharedServers(weak.Make(c), client)
	case *redis.ClusterClient:
		return sharedServers(weak.Make(c), client)
	case *redis.Ring:
		return sharedServers(weak.Make(c), client)
	}
	return newServers(client)
}

func sharedServers(key any, client Client) *Servers {
	shared.Lock()
	defer shared.Unlock()
	if s := shared.byClient[key].Value(); s != nil {
		return s
	}
	if shared.byClient == nil {
		shared.byClient = make(map[any]weak.Pointer[Servers])
	}
	s := newServers(client)
	shared.byClient[key] = weak.Make(s)
	runtime.AddCleanup(s, forgetServers, key)
	return s
}

// forgetServers removes the entry of Servers that are no longer used.
func forgetServers(key any) {
	shared.Lock()
	defer shared.Unlock()
	if shared.byClient[key].Value() == nil {
		delete(shared.byClient, key)
	}
}

func newServers(client Client) *Servers {
	s := &Servers{client: client}
	addr := ""
	switch c := client.(type) {
	case *redis.Client:
		addr, s.ctxDeadlines = c.Options().Addr, c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.cluster, s.ctxDeadlines = c, c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		s.ring, s.ctxDeadlines = c, c.Options().ContextTimeoutEnabled
	}
	s.whole = newServer(s, addr)
	s.byAddr.Store(&map[string]*Server{})
	return s
}

// add has s notify a Store.
func (s *Servers) add(st *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stores) == cap(s.stores) {
		s.stores = slices.DeleteFunc(s.stores, func(w weak.Pointer[Store]) bool { return w.Value() == nil })
	}
	s.stores = append(s.stores, weak.Make(st))
	s.open++
}

// remove notes that a Store is closed. With the last one probes end.
func (s *Servers) remove() {
	s.mu.Lock()
	s.open--
	last := s.open == 0
	s.mu.Unlock()
	if !last {
		return
	}
	s.whole.stopProbes()
	for _, sv := range *s.byAddr.Load() {
		sv.stopProbes()
	}
}

// subscribers returns the stores to notify: by, and one of each other owner.
func (s *Servers) subscribers(by *Store) []*Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*Store{by}
	told := map[any]bool{by.owner: by.owner != nil}
	for _, w := range s.stores {
		if st := w.Value(); st != nil && st != by && !told[st.owner] {
			all = append(all, st)
			told[st.owner] = st.owner != nil
		}
	}
	return all
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

// learnTopology reports whether sv stands for a Cluster of which only now is known
// which node has which keys. It asks the Cluster, and so is for the background only.
func (s *Servers) learnTopology(ctx context.Context, sv *Server, st *Store, k string) bool {
	if s.cluster == nil || sv != s.whole {
		return false
	}
	if _, err := s.cluster.MasterForKey(ctx, st.slotKey(k)); err != nil {
		return false
	}
	s.topologyKnown.Store(true)
	return true
}

// addServer returns a new Server for a node. It is forgotten once go-redis has
// forgotten the node.
func (s *Servers) addServer(addr string, node *redis.Client) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.byAddr.Load()
	if sv := old[addr]; sv != nil {
		return sv
	}
	sv := newServer(s, addr)
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

// apart reports whether it is known that no script may have the keys of several
// decisions.
func (sv *Server) apart() bool { return sv.sharding.state.Load() == keysApart }

func (sv *Server) setApart() { sv.sharding.state.Store(keysApart) }

// knownTogether reports whether it is known that one script may have them.
func (sv *Server) knownTogether() bool { return sv.sharding.state.Load() == keysTogether }

const (
	// maxInFlight is how many calls and batches are in flight before others wait. With
	// one, server and process take turns in being idle: at 64 callers two do 1.4 times
	// as much. Four do no more than two, but light traffic need not wait at all then,
	// and on a slow network others wait for a fraction of a round trip.
	maxInFlight = 4
	// maxInFlightOfNode is that of a node of a Cluster, which has only some of the callers.
	// With four its batches were half as large, and a decision of 64 callers on three nodes
	// took a quarter more of the CPU.
	maxInFlightOfNode = 2
)

// batcher returns the batcher of decisions for a server, or nil where each goes
// alone. Only of go-redis's own clients it is known which keys may be in one script
// or pipeline.
func (s *Store) batcher(sv *Server) *batcher {
	if s.maxBatch == 1 {
		return nil
	}
	if s.servers.cluster == nil {
		if sv.apart() {
			return nil
		}
		return s.single
	}
	if sv == s.servers.whole {
		return nil // the Cluster's topology is not known yet
	}
	if b := (*s.byServer.Load())[sv]; b != nil {
		return b
	}
	return s.addBatcher(sv)
}

func (s *Store) addBatcher(sv *Server) *batcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.byServer.Load()
	if b := old[sv]; b != nil {
		return b
	}
	next := maps.Clone(old)
	maps.DeleteFunc(next, func(sv *Server, _ *batcher) bool { return sv.gone.Load() })
	b := s.newBatcher(sv)
	next[sv] = b
	s.byServer.Store(&next)
	return b
}

func (s *Store) newBatcher(sv *Server) *batcher {
	most := batch.Bound{InFlight: maxInFlight, Calls: s.maxBatch, Weight: maxWork}
	if s.servers.cluster != nil {
		most.InFlight = maxInFlightOfNode
	}
	return batch.New(most, s.work, func(ctx context.Context, members []*member) error {
		if !sv.up(s.timeout) {
			return ErrBreakerOpen
		}
		return s.runBatch(ctx, sv, members)
	}, s.abandoned)
}
