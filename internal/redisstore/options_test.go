package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestEndsWithContext checks which options make a client end its calls with their contexts: go-redis must
// set deadlines for reads and writes.
func TestEndsWithContext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		read, write time.Duration
		want        bool
	}{
		{0, 0, true},
		{-1, -1, true},
		{-1, 0, true},
		{time.Second, time.Minute, true},
		{-2, 0, false}, // without a WriteTimeout, ReadTimeout applies to writes
		{-2, time.Second, false},
		{time.Second, -2, false},
		{0, -2, false},
		{-time.Second, 0, false},
		{0, -time.Second, false},
	} {
		for name, client := range map[string]Client{
			"Client":        redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, ReadTimeout: c.read, WriteTimeout: c.write}),
			"ClusterClient": redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, ReadTimeout: c.read, WriteTimeout: c.write}),
			"Ring": redis.NewRing(&redis.RingOptions{
				Addrs: map[string]string{"a": "127.0.0.1:1"}, ContextTimeoutEnabled: true, ReadTimeout: c.read, WriteTimeout: c.write,
			}),
			"Failover": redis.NewFailoverClient(&redis.FailoverOptions{ContextTimeoutEnabled: true, ReadTimeout: c.read, WriteTimeout: c.write}),
		} {
			if got := newServers(client, time.Second).ctxDeadlines; got != c.want {
				t.Errorf("%s with %v and %v: %v, want %v", name, c.read, c.write, got, c.want)
			}
			_ = client.(interface{ Close() error }).Close()
		}
	}
	connected := func(context.Context, *redis.Conn) error { return nil }
	password := func() (name, password string) { return "", "" }
	passwordWithin := func(context.Context) (name, password string, err error) { return "", "", nil }
	for name, client := range map[string]Client{
		"OnConnect":                  redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, OnConnect: connected}),
		"OnConnect, Cluster":         redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, OnConnect: connected}),
		"CredentialsProvider":        redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, CredentialsProvider: password}),
		"CredentialsProviderContext": redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, CredentialsProviderContext: passwordWithin}),
		"CredentialsProvider, Ring": redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": "127.0.0.1:1"}, ContextTimeoutEnabled: true, CredentialsProvider: password,
		}),
	} {
		if newServers(client, time.Second).ctxDeadlines {
			t.Errorf("%s: the user's function may take as long as it likes", name)
		}
		_ = client.(interface{ Close() error }).Close()
	}
	off := redis.NewClient(&redis.Options{})
	if newServers(off, time.Second).ctxDeadlines {
		t.Error("without ContextTimeoutEnabled go-redis goes by no context")
	}
	_ = off.Close()
}
