package docs_test

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/redis/go-redis/v9"
)

// The Examples in this file are the code that docs/cloud.md shows.

func iamToken(context.Context) (string, error) { return "", nil }

func Example_elastiCache() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{"clustercfg.limits.example.use1.cache.amazonaws.com:6379"},
		TLSConfig:             &tls.Config{MinVersion: tls.VersionTLS12},
		ContextTimeoutEnabled: true,
	})

	_ = rdb
}

func Example_iamAuthentication() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:     []string{"clustercfg.limits.example.use1.cache.amazonaws.com:6379"},
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		CredentialsProviderContext: func(ctx context.Context) (string, string, error) {
			token, err := iamToken(ctx) // signs a request for "connect" with your AWS credentials
			return "limits-user", token, err
		},
		ConnMaxLifetime:       11 * time.Hour,
		ContextTimeoutEnabled: true,
	})

	_ = rdb
}
