package redisstore

import (
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// eventually waits until holds returns true after a garbage collection.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Since(start) > 30*time.Second {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// All limiters over one client with the same timeout share a Servers, which must be garbage-collected
// together with the client and the stores.
func TestServersOfAClient(t *testing.T) {
	t.Parallel()
	key := func() sharedKey {
		a, b := redis.NewClient(&redis.Options{}), redis.NewClient(&redis.Options{})
		defer func() { _, _ = a.Close(), b.Close() }()
		s := serversOf(a, time.Second)
		if s != serversOf(a, time.Second) || s == serversOf(b, time.Second) || s == serversOf(a, time.Minute) {
			t.Error("one client and Timeout have one Servers, and each its own")
		}
		shared.Lock()
		defer shared.Unlock()
		for key, w := range shared.byClient {
			if w.Value() == s {
				return key
			}
		}
		t.Error("the client is not known")
		return sharedKey{}
	}()
	eventually(t, "what is known of a client ends with it", func() bool {
		shared.Lock()
		defer shared.Unlock()
		_, known := shared.byClient[key]
		return !known
	})
}

// A node that has left the Cluster is forgotten, with its health and its batches.
func TestNodeThatHasLeft(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = client.Close() }()
	st := NewStore(client, testConfig(time.Second))
	add := func(addr string) *node {
		node := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = node.Close() }()
		n := st.servers.addNode(addr, node)
		if n != st.servers.addNode(addr, node) {
			t.Errorf("%s is two servers", addr)
		}
		st.addBatcher(n)
		return n
	}
	left := add("127.0.0.1:2")
	eventually(t, "the node is forgotten", func() bool {
		_, known := (*st.servers.byAddr.Load())["127.0.0.1:2"]
		return left.gone.Load() && !known
	})
	add("127.0.0.1:3")
	if _, kept := (*st.byServer.Load())[left]; kept {
		t.Error("the batches to a node that has left are kept")
	}
}
