package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// A Client is what a [Store] needs of a client, which may be one of go-redis or another one.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A script is a Lua script. Only its digest is sent, and then the whole script if Redis does not know the
// digest. If this process cannot compute digests (see Digest), the whole script is always sent. The fields
// have the type any because they become arguments of a command.
type script struct {
	verb, body any // "evalsha" and the digest, or "eval" and the source
	source     any
	undeclared bool // see algorithm.Form
}

func newScript(source string, undeclared bool) script {
	if sha := Digest(source); sha != "" {
		return script{"evalsha", sha, source, undeclared}
	}
	return script{"eval", source, source, undeclared}
}

// scriptArgs is how many arguments come before the keys. The method command fills them in.
const scriptArgs = 3

// command returns the command that runs the script. It fills in the first scriptArgs of args; after them come
// the given number of keys, and then the other arguments. If the keys are undeclared, Redis gets 0 as the
// number of keys, and command appends the true number to the arguments.
func (s script) command(ctx context.Context, args []any, keys int) onceCmd {
	args[0], args[1], args[2] = s.verb, s.body, keys
	if s.undeclared {
		args[2] = 0
		args = append(args, keys)
	}
	return s.newCommand(ctx, args)
}

// newCommand returns a command with the given arguments. If the script has undeclared keys, the
// command goes to the server of the first key and, unlike a command with declared keys, is never
// redirected: during the move of a hash slot, the server to which a command is redirected would
// also decide on keys of the slot that have not arrived there yet.
func (s script) newCommand(ctx context.Context, args []any) onceCmd {
	cmd := onceCmd{redis.NewIntSliceCmd(ctx, args...)}
	if s.undeclared {
		cmd.SetFirstKeyPos(scriptArgs)
	}
	return cmd
}

// eval runs the script and returns its reply. If Redis does not know the script, eval calls loaded, unless
// loaded is nil, and sends the whole script.
func (s script) eval(ctx context.Context, client Client, args []any, keys int, loaded func(context.Context)) ([]int64, error) {
	cmd := s.command(ctx, args, keys)
	sendErr := client.Process(ctx, cmd)
	reply, err := s.reply(ctx, client, cmd, sendErr, loaded)
	return reply, unsent(err) // sendPipelined does not call unsent, because a pipeline may have sent some of its commands
}

// reply returns the reply to cmd, which was sent and returned err. It sends the whole script with
// EVAL if Redis has replied that it does not know the script, and in no other case, so that no
// decision is made twice.
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

// A onceCmd is a command that is sent once. go-redis repeats other commands when their reply is
// lost, and each repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry tells go-redis not to send the command again.
func (onceCmd) NoRetry() bool { return true }
