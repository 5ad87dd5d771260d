package outage

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

func TestMain(m *testing.M) {
	redisclient.UseDefaults()
	redis.SetLogger(quiet{})
	check.RunParallel(m, 6)
}

// quiet keeps go-redis from logging each failed connection: the failure of a test would be lost among those lines.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}
