package conformance

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
)

// A Driven client gives the scripts on a real Redis a clock that a test moves:
// in each script that passes, [algorithm.Clock] is replaced by one more argument.
// All else, Lua and its numbers above all, is Redis's own.
//
// Added as a hook to a client of go-redis's own it does the same there, in
// pipelines, too.
type Driven struct {
	client  core.Client
	now     atomic.Int64 // microseconds since the epoch
	sources sync.Map     // of the scripts that passed, by their digests
}

// NewDriven returns a client whose clock stands fifty years ahead of the server's,
// so that no key expires by itself, however far a test turns the clock back.
func NewDriven(client core.Client) *Driven {
	d := &Driven{client: client}
	d.now.Store(time.Now().AddDate(50, 0, 0).UnixMicro())
	return d
}

// Now returns the time of the clock.
func (d *Driven) Now() time.Time { return time.UnixMicro(d.now.Load()) }

// Advance moves the clock.
func (d *Driven) Advance(by time.Duration) { d.now.Add(by.Microseconds()) }

// Process runs cmd, a script by the driven clock.
func (d *Driven) Process(ctx context.Context, cmd redis.Cmder) error {
	return d.ProcessHook(d.client.Process)(ctx, cmd)
}

// DialHook changes nothing.
func (d *Driven) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook runs a command, a script by the driven clock.
func (d *Driven) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		run := d.driven(ctx, cmd)
		if run == nil {
			cmd.SetErr(noScriptError{})
			return noScriptError{}
		}
		err := next(ctx, run)
		answer(cmd, run)
		return err
	}
}

// ProcessPipelineHook runs the scripts of a pipeline so.
func (d *Driven) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var runs, sent []redis.Cmder
		for _, cmd := range cmds {
			run := d.driven(ctx, cmd)
			if run == nil {
				cmd.SetErr(noScriptError{})
			} else {
				runs, sent = append(runs, run), append(sent, cmd)
			}
		}
		var err error
		if len(runs) > 0 {
			err = next(ctx, runs)
		}
		for i, run := range runs {
			answer(sent[i], run)
		}
		if err == nil && len(runs) < len(cmds) {
			err = noScriptError{}
		}
		return err
	}
}

// answer hands the answer to run on to cmd, for which it was sent.
func answer(cmd, run redis.Cmder) {
	if cmd == run {
		return
	}
	cmd.SetErr(run.Err())
	from, ok := run.(*redis.IntSliceCmd)
	if into, takes := cmd.(interface{ SetVal(val []int64) }); ok && takes {
		into.SetVal(from.Val())
	}
}

// drivenClock stands in for [algorithm.Clock]. A TTL counts from the server's clock,
// which does not go with the driven one: it is longer by more than any test lasts.
const drivenClock = "local now, grace = tonumber(table.remove(ARGV)), 1e11\n"

// DrivenGrace is by how much keys outlive their need with a driven clock, beyond
// what they do with the server's.
const DrivenGrace = 1e11 * time.Millisecond

// driven returns what to send for cmd, or nil for a script that is not known yet:
// its digest is that of the script with the server's clock.
func (d *Driven) driven(ctx context.Context, cmd redis.Cmder) redis.Cmder {
	args := cmd.Args()
	var source string
	switch cmd.Name() {
	case "evalsha":
		known, ok := d.sources.Load(args[1])
		if !ok {
			return nil
		}
		source, _ = known.(string)
	case "eval":
		source, _ = args[1].(string)
		sum := sha1.Sum([]byte(source))
		d.sources.Store(hex.EncodeToString(sum[:]), source)
	default:
		return cmd
	}
	rest, ok := strings.CutPrefix(source, algorithm.Clock)
	if !ok {
		panic("conformance: a script that does not begin with algorithm.Clock")
	}
	own := append([]any(nil), args...)
	own[0], own[1] = "eval", drivenClock+rest
	own = append(own, strconv.FormatInt(d.now.Load(), 10))
	return redis.NewIntSliceCmd(ctx, own...)
}

type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScriptError) RedisError()   {}
