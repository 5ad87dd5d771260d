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

// quiet has go-redis not log each connection that cannot be made: a failure of a test would not be found among them.
type quiet struct{}

// Printf does nothing.
func (quiet) Printf(context.Context, string, ...any) {}
