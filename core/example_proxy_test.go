package core_test

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// Twemproxy closes a connection if it receives a command that it does not know, and go-redis begins each
// connection with such a command, HELLO. The hook leaves it out.
func ExampleNew_twemproxy() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:22121", Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true})
	rdb.AddHook(withoutHello{})
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
}

type withoutHello struct{}

func (withoutHello) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hello" {
			return nil
		}
		return next(ctx, cmd)
	}
}

func (withoutHello) DialHook(next redis.DialHook) redis.DialHook { return next }

func (withoutHello) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
