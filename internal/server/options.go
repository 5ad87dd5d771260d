package server

import (
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// optionsOf returns the options by which the connections of a client work, or nil for a client that
// is not one of go-redis's own. A connection's ReadTimeout and WriteTimeout are then
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
			DialTimeout: o.DialTimeout, PoolTimeout: o.PoolTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime,
		}
	case *redis.Ring:
		o := c.Options()
		given = &redis.Options{
			ContextTimeoutEnabled: o.ContextTimeoutEnabled, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			DialTimeout: o.DialTimeout, PoolTimeout: o.PoolTimeout, ConnMaxIdleTime: o.ConnMaxIdleTime,
		}
	default:
		return nil
	}
	node := redis.NewClient(given) // as the clients of its nodes are made; it connects to nothing
	defer func() { _ = node.Close() }()
	return node.Options()
}

// endsWithContext reports whether a client of these options ends a call when its context does.
func endsWithContext(o *redis.Options) bool {
	return o != nil && o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
}

// endedBy returns the name and the value of the option of the client that has ended a call with err,
// after so long, although the call was given more time. The name is "" if it was none of them.
func (s *Servers) endedBy(err error, took, given time.Duration) (name string, value time.Duration) {
	o, op := s.options, (*net.OpError)(nil)
	switch {
	case o == nil:
	case errors.Is(err, redis.ErrPoolTimeout):
		name, value = "PoolTimeout", o.PoolTimeout
	case !errors.As(err, &op):
	case op.Op == "read":
		name, value = "ReadTimeout", o.ReadTimeout
	case op.Op == "write":
		name, value = "WriteTimeout", o.WriteTimeout
	case op.Op == "dial":
		name, value = "DialTimeout", o.DialTimeout
	}
	if value <= 0 || value >= given || took >= given {
		return "", 0
	}
	return name, value
}
