package conformance

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// A Driven client gives the scripts on a real Redis a driven clock: a clock that the test moves. In each script, Driven
// replaces [algorithm.Clock] by code that reads the time from one more argument. Everything else, such as the arithmetic of
// Lua, remains Redis's own.
//
// As a hook of a go-redis client, Driven does the same for the commands and pipelines of that client.
type Driven struct {
	client  core.Client
	now     atomic.Int64 // microseconds since the epoch
	sources sync.Map     // the source of each script that was sent, by its digest
}

// NewDriven returns a client whose clock stands far ahead of the server's clock, so that no key expires during a test,
// however far the test turns the clock back. The clock does not start near the end of an hour, whenever the test is run.
func NewDriven(client core.Client) *Driven {
	d := &Driven{client: client}
	d.now.Store(3_600_000_012_345_678)
	return d
}

// Now returns the time of the clock.
func (d *Driven) Now() time.Time { return time.UnixMicro(d.now.Load()) }

// Wall returns the option with which a limiter finds the windows of a calendar by the driven clock.
func (d *Driven) Wall() core.Option { return inside.Core.Simulate(coreaccess.Simulation{Wall: d.Now}) }

// Advance moves the clock.
func (d *Driven) Advance(by time.Duration) { d.now.Add(by.Microseconds()) }

// Source returns the source of the script with the digest, or "" if the client has not sent that script yet.
func (d *Driven) Source(digest string) string {
	known, _ := d.sources.Load(digest)
	source, _ := known.(string)
	return source
}

// Process runs cmd, by the driven clock if cmd runs a script.
func (d *Driven) Process(ctx context.Context, cmd redis.Cmder) error {
	return d.ProcessHook(d.client.Process)(ctx, cmd)
}

// DialHook does nothing. The interface redis.Hook requires it.
func (d *Driven) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook does for each command of a client what Process does.
func (d *Driven) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		run := d.driven(ctx, cmd)
		if run == nil {
			cmd.SetErr(noScriptError{})
			return noScriptError{}
		}
		err := next(ctx, run)
		copyReply(cmd, run)
		return err
	}
}

// ProcessPipelineHook does for each command of a pipeline what Process does.
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
			copyReply(sent[i], run)
		}
		if err == nil && len(runs) < len(cmds) {
			err = noScriptError{}
		}
		return err
	}
}

// copyReply copies to cmd the reply to run, which was sent instead of cmd.
func copyReply(cmd, run redis.Cmder) {
	if cmd == run {
		return
	}
	cmd.SetErr(run.Err())
	from, ok := run.(*redis.IntSliceCmd)
	if into, takes := cmd.(interface{ SetVal(val []int64) }); ok && takes {
		into.SetVal(from.Val())
	}
}

// drivenClock replaces [algorithm.Clock]. Keys expire by the server's clock, which does not move with the driven clock. So
// the scripts add a grace period to the TTL of each string that is longer than any test.
const drivenClock = "local now, grace = tonumber(table.remove(ARGV)), 1e11\n"

// DrivenGrace is how much later keys expire under a driven clock than in production.
const DrivenGrace = 1e11 * time.Millisecond

// driven returns the command to send instead of cmd, or nil if cmd names by its digest a script whose source was not sent
// yet.
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
		d.sources.Store(redisstore.Digest(source), source)
	default:
		return cmd
	}
	rest, ok := strings.CutPrefix(source, algorithm.Clock)
	switch {
	case !ok && !strings.Contains(source, "TIME"):
		return cmd // the script uses no clock
	case !ok:
		panic("conformance: a script that does not begin with algorithm.Clock")
	}
	changed := append([]any(nil), args...)
	changed[0], changed[1] = "eval", drivenClock+rest
	changed = append(changed, strconv.FormatInt(d.now.Load(), 10))
	run := redis.NewIntSliceCmd(ctx, changed...)
	if changed[2] == 0 {
		run.SetFirstKeyPos(3) // the keys are undeclared: the first argument after them routes the script to a server of a Cluster
	}
	return run
}

type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScriptError) RedisError()   {}
