package redisstore

import "github.com/redis/go-redis/v9"

// optionsOf returns the options of the connections of a client, or nil if the client is not one of
// go-redis. go-redis has already replaced some of the values that the user has set: for example, -1
// has become 0. ReadTimeout and WriteTimeout mean:
//
//	positive  a step of a call takes at most that long, and no longer than the context lasts
//	0         a step of a call takes at most as long as the context lasts
//	negative  nothing bounds a call, whatever the context and ContextTimeoutEnabled say
func optionsOf(client Client) *redis.Options {
	var given *redis.Options
	switch c := client.(type) {
	case *redis.Client:
		return c.Options() // already with the replaced values
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
	node := redis.NewClient(given) // go-redis makes the clients of the nodes in the same way; this one never connects
	defer func() { _ = node.Close() }()
	return node.Options()
}

// endsWithContext reports whether a client with these options ends a call when its context ends. A
// client with user functions that run while a connection is made does not: they may take any time, and
// some, such as CredentialsProvider, do not even get a context.
func endsWithContext(o *redis.Options) bool {
	if o == nil || !o.ContextTimeoutEnabled || o.ReadTimeout < 0 || o.WriteTimeout < 0 {
		return false
	}
	return o.OnConnect == nil && o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil
}
