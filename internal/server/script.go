package server

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// A Client is what a [Store] needs of go-redis.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A script is a Lua script and the digest by which Redis knows it, both as
// arguments of a command.
type script struct {
	source, sha any
	undeclared  bool // see algorithm.Form
}

func newScript(source string, undeclared bool) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:]), undeclared}
}

// scriptArgs is how many of a script's arguments command fills in.
const scriptArgs = 3

// command returns the command that runs the script, if Redis has it, on as many
// keys as are given. The first scriptArgs of args are filled in.
func (s script) command(ctx context.Context, args []any, keys int) onceCmd {
	args[0], args[1], args[2] = "evalsha", s.sha, keys
	if s.undeclared {
		args[2] = 0
		args = append(args, keys)
	}
	return s.send(ctx, args)
}

// send returns the command of these arguments. One with undeclared keys goes to the server
// that has the first of them. No server redirects it, as it would do with declared keys: where
// a slot is being moved to, it would decide on keys of all such slots, also on those that
// have not come yet.
func (s script) send(ctx context.Context, args []any) onceCmd {
	cmd := onceCmd{redis.NewIntSliceCmd(ctx, args...)}
	if s.undeclared {
		cmd.SetFirstKeyPos(scriptArgs)
	}
	return cmd
}

// run runs the script.
func (s script) run(ctx context.Context, client Client, args []any, keys int, loaded func(context.Context)) ([]int64, error) {
	cmd := s.command(ctx, args, keys)
	return s.reply(ctx, client, cmd, client.Process(ctx, cmd), loaded)
}

// reply returns the reply to cmd, which was sent and returned err. EVAL follows only
// where Redis replied that it does not have the script, so that a decision is never run
// twice.
func (s script) reply(ctx context.Context, client Client, cmd onceCmd, err error, loaded func(context.Context)) ([]int64, error) {
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		if loaded != nil {
			loaded(ctx)
		}
		args := cmd.Args()
		args[0], args[1] = "eval", s.source
		cmd = s.send(ctx, args)
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// A onceCmd is sent once. go-redis repeats other commands when their reply is
// lost, and each repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry has go-redis not send the command again.
func (onceCmd) NoRetry() bool { return true }
