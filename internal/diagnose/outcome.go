package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/health"
)

// Outcome returns what the error of a call says about its server. An error of no known kind, such as a
// failure to connect, counts as Unavailable.
func Outcome(err error) health.Outcome {
	var reply redis.Error
	switch {
	case err == nil:
		return health.Answered
	case IsTimeout(err):
		return health.TimedOut
	case errors.Is(err, ErrUnsupported), servesNobody(err):
		return health.Unavailable
	case errors.As(err, &reply):
		return health.Rejected
	case errors.Is(err, redis.ErrPoolExhausted):
		return health.Inconclusive
	case IsBroken(err):
		return health.ConnectionLost
	}
	return health.Unavailable
}

// IsTimeout reports whether err says that a deadline passed: the deadline of a context, of a connection or
// of the client's pool.
func IsTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, redis.ErrPoolTimeout)
}

// IsDial reports whether err says that no connection could be made.
func IsDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// IsBroken reports whether err says that a connection was made and then failed. A timeout of a read or write
// also counts, so call IsTimeout first to tell the two apart.
func IsBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}

// HasCode reports whether err is the reply of a server and begins with one of the codes. An "ERR " before
// the code is ignored.
func HasCode(err error, codes ...string) bool {
	return slices.ContainsFunc(codes, func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

// SlotMoving reports whether err says that a hash slot is being moved, or that no node has it.
func SlotMoving(err error) bool { return HasCode(err, "TRYAGAIN", "CLUSTERDOWN Hash slot not served") }

// Timeout returns the error to show for a call that ended with err, without an answer. given is how long the
// call was allowed to take, and took is how long it took. If an option of the client ended the call too
// soon, the error names the option. Otherwise the error says so if all connections of the client's pool are
// in use, which Timeout can see only for a redis.Client. client may be of any type, and o, the options of
// the client, may be nil. The error wraps [context.DeadlineExceeded], but not err.
func Timeout(client any, o *redis.Options, err error, took, given time.Duration) error {
	if option, value := endedBy(o, err, took, given); option != "" {
		return fmt.Errorf("no answer from redis within %v: the client's %s of %v ended the call, which may take %v: "+
			"raise it, or lower core.Timeout: %w",
			took.Round(time.Millisecond), option, value, given.Round(time.Microsecond), context.DeadlineExceeded)
	}
	pool := ""
	if c, ok := client.(*redis.Client); ok {
		stats, size := c.PoolStats(), c.Options().PoolSize
		if errors.Is(err, redis.ErrPoolTimeout) || stats.IdleConns == 0 && int(stats.TotalConns) >= size {
			pool = fmt.Sprintf(" (all %d connections of the client's pool are in use)", size)
		}
	}
	return fmt.Errorf("no answer from redis within %v%s: %w", given.Round(time.Microsecond), pool, context.DeadlineExceeded)
}

// endedBy returns the name and the value of the client's option that ended a call after the time took,
// before the time given had passed. The name is "" if no option ended the call.
func endedBy(o *redis.Options, err error, took, given time.Duration) (name string, value time.Duration) {
	op := (*net.OpError)(nil)
	switch {
	case o == nil:
	case errors.Is(err, redis.ErrPoolTimeout):
		name, value = "PoolTimeout", o.PoolTimeout
	case !errors.As(err, &op):
	case op.Op == "read":
		name, value = "ReadTimeout", o.ReadTimeout
	case op.Op == "write":
		name, value = "WriteTimeout", o.WriteTimeout
	case op.Op == "dial":
		name, value = "DialTimeout", o.DialTimeout
	}
	if value <= 0 || value >= given || took >= given {
		return "", 0
	}
	return name, value
}
