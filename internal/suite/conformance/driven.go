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

// A Driven client gives scripts on a real Redis a driven clock: one that the test
// moves. In each script that passes, it replaces [algorithm.Clock] by code that reads
// the time from one more argument. All else is Redis's own, such as Lua's numbers.
//
// As a hook of a go-redis client it does the same for that client, also in pipelines.
type Driven struct {
	client  core.Client
	now     atomic.Int64 // microseconds since the epoch
	sources sync.Map     // the scripts that passed, by their digests
}

// NewDriven returns a client whose clock stands far ahead of the server's, so that no key expires during a
// test, however far the test turns the clock back; and not near the end of an hour, whenever the test is
// run.
func NewDriven(client core.Client) *Driven {
	d := &Driven{client: client}
	d.now.Store(3_600_000_012_345_678)
	return d
}

// Now returns the time of the clock.
func (d *Driven) Now() time.Time { return time.UnixMicro(d.now.Load()) }

// Wall has a limiter find the windows of a calendar by the clock.
func (d *Driven) Wall() core.Option { return inside.Core.Simulate(coreaccess.Simulation{Wall: d.Now}) }

// Advance moves the clock.
func (d *Driven) Advance(by time.Duration) { d.now.Add(by.Microseconds()) }

// Source returns the text of the script that has a digest, or "" if it has not passed.
func (d *Driven) Source(digest string) string {
	known, _ := d.sources.Load(digest)
	source, _ := known.(string)
	return source
}

// Process runs cmd. If it is a script, it runs by the driven clock.
func (d *Driven) Process(ctx context.Context, cmd redis.Cmder) error {
	return d.ProcessHook(d.client.Process)(ctx, cmd)
}

// DialHook does nothing: a redis.Hook needs it.
func (d *Driven) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook does what Process does, as a hook.
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

// ProcessPipelineHook does so for each command of a pipeline.
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

// copyReply copies the reply to run, which was sent in place of cmd, to cmd.
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

// drivenClock replaces [algorithm.Clock]. TTLs count from the server's clock, which
// does not move with the driven one: they are longer by more than any test lasts.
const drivenClock = "local now, grace = tonumber(table.remove(ARGV)), 1e11\n"

// DrivenGrace is how much later keys expire than they would by the server's clock.
const DrivenGrace = 1e11 * time.Millisecond

// driven returns what to send in place of cmd, or nil if cmd has the digest of a script
// that has not passed yet.
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
		return cmd // it does not go by any clock
	case !ok:
		panic("conformance: a script that does not begin with algorithm.Clock")
	}
	changed := append([]any(nil), args...)
	changed[0], changed[1] = "eval", drivenClock+rest
	changed = append(changed, strconv.FormatInt(d.now.Load(), 10))
	run := redis.NewIntSliceCmd(ctx, changed...)
	if changed[2] == 0 {
		run.SetFirstKeyPos(3) // undeclared keys of a server of a Cluster, to which it goes
	}
	return run
}

type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScriptError) RedisError()   {}
