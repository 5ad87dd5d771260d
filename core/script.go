package core

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A script is a Lua script and the digest by which Redis knows it.
type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// run runs the script with args, whose first three places it fills in itself.
// EVAL follows only where Redis said that it does not have the script, so that a
// decision is never run twice.
func (s script) run(ctx context.Context, on *redisStore, args []any) ([]int64, error) {
	args[0], args[1], args[2] = "evalsha", s.sha, len(on.tails)
	cmd := onceCmd{redis.NewIntSliceCmd(ctx, args...)}
	err := on.client.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		on.events.emit(ctx, Event{Kind: EventScriptLoad})
		args[0], args[1] = "eval", s.source
		cmd = onceCmd{redis.NewIntSliceCmd(ctx, args...)}
		err = on.client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// A onceCmd is sent once. go-redis repeats other commands when their reply is
// lost, and each repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry tells go-redis not to send the command again.
func (onceCmd) NoRetry() bool { return true }

// decideSource composes the Lua of a decision on limits. One limit does not pay
// for the generality that several need.
func decideSource(limits []Limit) string {
	if len(limits) == 1 {
		return librarySource(limits) + "\nlocal algorithm = " + limits[0].algorithm.name + "\n" + decideScript
	}
	return librarySource(limits) + tableSource(limits) + decideAllScript
}

// refundSource composes the Lua that gives back what was charged to limits.
func refundSource(limits []Limit) string {
	return librarySource(limits) + tableSource(limits) + refundScript
}

// librarySource is the files of the limits' algorithms, each once.
func librarySource(limits []Limit) string {
	source := stateLibrary
	for _, l := range limits {
		for _, file := range append(l.algorithm.library, l.algorithm.script) {
			if !strings.Contains(source, file) {
				source += "\n" + file
			}
		}
	}
	return source
}

func tableSource(limits []Limit) string {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.algorithm.name
	}
	return "\nlocal algorithms = { " + strings.Join(names, ", ") + " }\n"
}
