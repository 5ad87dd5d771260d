package redisstore

import "github.com/redis/go-redis/v9"

// optionsOf returns the options of the connections of a client, or nil if the client is not one of
// go-redis. go-redis has already replaced some of the values that the user has set: for example, the
// -1 of a Client has become 0. ReadTimeout and WriteTimeout then bound each read and each write:
//
//	positive  by that time and, if ContextTimeoutEnabled is set, by the deadline of the context
//	0         by the deadline of the context if ContextTimeoutEnabled is set, and otherwise not at all
//	negative  not at all, whatever the context and ContextTimeoutEnabled say
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

// endsWithContext reports whether a client with these options ends a call at the deadline of its context.
// (While go-redis waits for a reply, it does not notice that a context is canceled.) A client with user
// functions that prepare a new connection does not end its calls in time: these functions may take any
// time, and some, such as CredentialsProvider, do not even get a context. A Dialer of the user does not
// matter, because go-redis calls it in another goroutine. o may be nil.
func endsWithContext(o *redis.Options) bool {
	if o == nil || !o.ContextTimeoutEnabled || o.ReadTimeout < 0 || o.WriteTimeout < 0 {
		return false
	}
	return o.OnConnect == nil && o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil
}
