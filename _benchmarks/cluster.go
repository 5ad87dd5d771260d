package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	masters = 3
	slots   = 16384
)

// startCluster starts a Cluster of masters without replicas. It returns when each master can serve or redirect
// any key. It needs Redis 7.0.
func startCluster(ctx context.Context) (all []*server, err error) {
	defer func() {
		if err != nil {
			for _, s := range all {
				s.stop()
			}
		}
	}()
	firstBus := ""
	for i := range masters {
		bus, err := freePort() // the default, the client port plus 10,000, may not be a valid port
		if err != nil {
			return all, err
		}
		s, err := startServer(ctx, "--cluster-enabled", "yes", "--cluster-port", bus)
		if err != nil {
			return all, err
		}
		all = append(all, s)
		rdb := redis.NewClient(&redis.Options{Addr: s.addr})
		defer func() { _ = rdb.Close() }()
		if err := rdb.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			return all, err
		}
		if i == 0 {
			firstBus = bus
			continue
		}
		host, port, err := net.SplitHostPort(all[0].addr)
		if err != nil {
			return all, err
		}
		if err := rdb.Do(ctx, "cluster", "meet", host, port, firstBus).Err(); err != nil {
			return all, err
		}
	}
	for end := time.Now().Add(startLimit); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(pollEvery) {
		if agree(ctx, all) {
			return all, nil
		}
	}
	return all, errors.New("the servers make no cluster")
}

// agree reports whether every server sees a working Cluster of all masters.
func agree(ctx context.Context, servers []*server) bool {
	for _, s := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.addr})
		info, err := rdb.ClusterInfo(ctx).Result()
		_ = rdb.Close()
		if err != nil || !strings.Contains(info, "cluster_state:ok\r\n") || !strings.Contains(info, "cluster_size:"+strconv.Itoa(masters)+"\r\n") {
			return false
		}
	}
	return true
}
