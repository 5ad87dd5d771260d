package conformance

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// A Driven client gives the scripts on a real Redis a clock that a test moves:
// in each script that passes, the call of TIME is replaced by two more arguments.
// All else, Lua and its numbers above all, is Redis's own.
type Driven struct {
	client core.Client
	now    atomic.Int64 // microseconds since the epoch
}

// NewDriven returns a client whose clock stands fifty years ahead of the server's,
// so that no key expires by itself, however far a test turns the clock back.
func NewDriven(client core.Client) *Driven {
	d := &Driven{client: client}
	d.now.Store(time.Now().AddDate(50, 0, 0).UnixMicro())
	return d
}

// Advance moves the clock.
func (d *Driven) Advance(by time.Duration) { d.now.Add(by.Microseconds()) }

// Process runs cmd, a script by the driven clock.
func (d *Driven) Process(ctx context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	switch cmd.Name() {
	case "evalsha":
		// The digest is of the script with the server's clock: have it sent whole.
		cmd.SetErr(noScriptError{})
		return noScriptError{}
	case "eval":
		const clock = "redis.call('TIME')"
		source, _ := args[1].(string)
		if strings.Count(source, clock) != 1 {
			panic("conformance: a script that asks for the time more than once, or never")
		}
		now := d.now.Load()
		own := append([]any(nil), args...)
		own[1] = strings.Replace(source, clock, "{ ARGV[#ARGV - 1], ARGV[#ARGV] }", 1)
		own = append(own, strconv.FormatInt(now/1e6, 10), strconv.FormatInt(now%1e6, 10))
		run := redis.NewIntSliceCmd(ctx, own...)
		err := d.client.Process(ctx, run)
		cmd.SetErr(err)
		if into, ok := cmd.(interface{ SetVal(val []int64) }); ok {
			into.SetVal(run.Val())
		}
		return err
	}
	return d.client.Process(ctx, cmd)
}

type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScriptError) RedisError()   {}
