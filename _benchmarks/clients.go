package main

import (
	"errors"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// clients are those of a cell, for all its contenders. They are closed with it.
type clients struct {
	rdb   redis.UniversalClient // a connection for each caller to each server, and ContextTimeoutEnabled
	stock redis.UniversalClient // with go-redis's default options
	addrs []string              // of the servers

	pipelining rueidis.Client // made for the first contender that asks for it
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

// rueidis returns the cell's client of rueidis, with default options: it pipelines by itself.
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
