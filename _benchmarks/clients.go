package main

import (
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// clients are the Redis clients of one cell. All its contenders share them, and they are closed after the cell.
type clients struct {
	rdb   redis.UniversalClient // with ContextTimeoutEnabled and, to each server, a connection for each caller
	stock redis.UniversalClient // with go-redis's default options
	addrs []string              // the servers' addresses

	pipelining rueidis.Client // made for the first contender that uses it
}

// connect returns the clients of a cell.
func connect(c cell, addrs ...string) *clients {
	return &clients{rdb: dial(c, addrs, true), stock: dial(c, addrs, false), addrs: addrs}
}

func dial(c cell, addrs []string, deadlines bool) redis.UniversalClient {
	if !c.cluster {
		return redis.NewClient(&redis.Options{Addr: addrs[0], PoolSize: c.callers + 1, ContextTimeoutEnabled: deadlines})
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, PoolSize: c.callers + 1, ContextTimeoutEnabled: deadlines})
}

// rueidis returns the cell's rueidis client. It has default options, with which it pipelines automatically.
func (c *clients) rueidis() (rueidis.Client, error) {
	if c.pipelining != nil {
		return c.pipelining, nil
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.addrs})
	if err == nil {
		c.pipelining = client
	}
	return client, err
}

func (c *clients) close() {
	_ = errors.Join(c.rdb.Close(), c.stock.Close())
	if c.pipelining != nil {
		c.pipelining.Close()
	}
}
