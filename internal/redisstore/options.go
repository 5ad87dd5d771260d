package redisstore

import "github.com/redis/go-redis/v9"

// optionsOf returns the options of the connections of a client, or nil for a client that is not
// go-redis's own. In these options go-redis has replaced what the user gave: -1 of the user's is 0
// here. ReadTimeout and WriteTimeout are
//
//	positive  the longest that it waits for a step of a call, if the context does not end before
//	0         as long as the context lasts
//	negative  for ever: go-redis sets no deadline, whatever the context and ContextTimeoutEnabled say
func optionsOf(client Client) *redis.Options {
	var given *redis.Options
	switch c := client.(type) {
	case *redis.Client:
		return c.Options() // a client replaces what it was given by this
	case *redis.ClusterClient:
		o := c.Options()
		given = &redis.Options{
			ContextTimeoutEnabled: o.ContextTimeoutEnabled, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			DialTimeout: o.DialTimeout, PoolTimeout: o.PoolTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime, OnConnect: o.OnConnect,
			CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
			StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		}
	case *redis.Ring:
		o := c.Options()
		given = &redis.Options{
			ContextTimeoutEnabled: o.ContextTimeoutEnabled, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			DialTimeout: o.DialTimeout, PoolTimeout: o.PoolTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime, OnConnect: o.OnConnect,
			CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
			StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		}
	default:
		return nil
	}
	node := redis.NewClient(given) // as the clients of its nodes are made; it connects to nothing
	defer func() { _ = node.Close() }()
	return node.Options()
}

// endsWithContext reports whether a client of these options ends a call when its context does. While
// it makes a connection it calls functions of the user, which may take as long as they like: one that
// gets a password from elsewhere does not even get a context.
func endsWithContext(o *redis.Options) bool {
	if o == nil || !o.ContextTimeoutEnabled || o.ReadTimeout < 0 || o.WriteTimeout < 0 {
		return false
	}
	return o.OnConnect == nil && o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil
}
