package core

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// A script is a Lua script and the digest by which Redis knows it, both as
// arguments of a command.
type script struct{ source, sha any }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// run runs the script with args, whose first places it fills in itself, on as many
// keys as stand there next. EVAL follows only where Redis said that it does not
// have the script, so that a decision is never run twice.
func (s script) run(ctx context.Context, on *redisStore, args []any, keys int) ([]int64, error) {
	cmd := s.command(ctx, args, keys)
	err := on.client.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		on.events.emit(ctx, Event{Kind: EventScriptLoad})
		args[0], args[1] = "eval", s.source
		cmd = onceCmd{redis.NewIntSliceCmd(ctx, args...)}
		err = on.client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// command returns the command that runs the script, if Redis has it.
func (s script) command(ctx context.Context, args []any, keys int) onceCmd {
	args[0], args[1], args[2] = "evalsha", s.sha, keys
	return onceCmd{redis.NewIntSliceCmd(ctx, args...)}
}

// scriptArgs is how many of a script's arguments run fills in.
const scriptArgs = 3

// A onceCmd is sent once. go-redis repeats other commands when their reply is
// lost, and each repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry tells go-redis not to send the command again.
func (onceCmd) NoRetry() bool { return true }
