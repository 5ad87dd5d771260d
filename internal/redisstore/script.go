package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Client is what a [Store] needs of go-redis.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A script is a Lua script and how Redis is asked to run it: by the digest by which Redis knows it,
// or as a whole. All are arguments of a command.
type script struct {
	name, text any // "evalsha" and the digest, or "eval" and the source
	source     any
	undeclared bool // see algorithm.Form
}

func newScript(source string, undeclared bool) script {
	if sha := Digest(source); sha != "" {
		return script{"evalsha", sha, source, undeclared}
	}
	return script{"eval", source, source, undeclared}
}

// scriptArgs is how many of a script's arguments command fills in.
const scriptArgs = 3

// command returns the command that runs the script, if Redis has it, on as many keys as are given.
// The first scriptArgs of args are filled in.
func (s script) command(ctx context.Context, args []any, keys int) onceCmd {
	args[0], args[1], args[2] = s.name, s.text, keys
	if s.undeclared {
		args[2] = 0
		args = append(args, keys)
	}
	return s.newCommand(ctx, args)
}

// newCommand returns the command of these arguments. One with undeclared keys goes to the server
// that has the first of them. Unlike one with declared keys it is never redirected: after a
// redirect a server would also decide on keys of a slot that is moving to it, and have not come
// yet.
func (s script) newCommand(ctx context.Context, args []any) onceCmd {
	cmd := onceCmd{redis.NewIntSliceCmd(ctx, args...)}
	if s.undeclared {
		cmd.SetFirstKeyPos(scriptArgs)
	}
	return cmd
}

// run runs the script.
func (s script) run(ctx context.Context, client Client, args []any, keys int, loaded func(context.Context)) ([]int64, error) {
	cmd := s.command(ctx, args, keys)
	reply, err := s.reply(ctx, client, cmd, client.Process(ctx, cmd), loaded)
	return reply, unsent(err) // of a pipeline some commands may have been sent
}

// reply returns the reply to cmd, which was sent and returned err. EVAL follows only where Redis
// replied that it does not have the script, so that a decision is never run twice.
func (s script) reply(ctx context.Context, client Client, cmd onceCmd, err error, loaded func(context.Context)) ([]int64, error) {
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		if loaded != nil {
			loaded(ctx)
		}
		args := cmd.Args()
		args[0], args[1] = "eval", s.source
		cmd = s.newCommand(ctx, args)
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// A onceCmd is sent once. go-redis repeats other commands when their reply is lost, and each
// repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry has go-redis not send the command again.
func (onceCmd) NoRetry() bool { return true }
