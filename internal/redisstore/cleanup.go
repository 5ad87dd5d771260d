package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/diagnose"
	"github.com/redislimit/redislimit/internal/health"
)

const (
	// maxCleanups bounds how many cleanups wait. It also bounds how many goroutines of Later and End run at a
	// time. If a cleanup is above the bound, the units and slots that it would free expire.
	maxCleanups = 10_000
	// cleanupPause is the pause before the next attempt if a server is down.
	cleanupPause = 50 * time.Millisecond
)

// cleanups sends the calls that free what is held for callers that have left. It also counts what Close waits
// for: the goroutines that send these calls, the goroutines of Later and End, and calls in flight whose callers
// have left.
type cleanups struct {
	mu      sync.Mutex
	waiting []cleanup
	freeing bool // a goroutine is sending the cleanups in waiting
	sending int  // how many goroutines Close waits for: the one that runs the method free, and those that the method begin has counted
	delays  int  // how many calls of delayClose have not been followed by allowClose yet
}

// A cleanup is a call that frees the units and slots that another call holds. They expire at about the
// instant in the field until. After that, the cleanup is useless, and is dropped.
type cleanup struct {
	limits    *Limits
	key       string
	operation algorithm.Operation
	until     time.Time
}

// freeUnclaimed frees the units and slots that d holds. It is called if nobody takes the reply, because the
// caller has left or has received the error err. Units that d has charged stay charged. There is one
// exception: if a limit has a queue and d has Handles, a refund of everything that d has charged is sent. If the
// reply is lost, only slots are freed, by the id that Decide chose for their hold, and units are left to
// expire.
// freeUnclaimed works in the background; see freeLater about OnlyCallers.
func (s *Store) freeUnclaimed(d *Call, err error) {
	call, holds := d.undo(err)
	if !holds {
		return
	}
	longest := int64(0)
	for _, m := range d.Limits.limits {
		longest = max(longest, m.HoldDuration)
	}
	s.freeLater(d, call, time.Duration(longest)*time.Microsecond)
}

// freeLater makes a call about the key of d in the background, at most once. With OnlyCallers, it makes the
// call before it returns, unless another goroutine is sending cleanups and will make the call. It gives up if
// the call cannot be sent within the given time, or if too many cleanups wait.
func (s *Store) freeLater(d *Call, call algorithm.Operation, within time.Duration) {
	s.cleanups.add(s, cleanup{d.Limits, d.Key, call, time.Now().Add(within)})
}

// delayClose makes Close wait until allowClose is called. It is called when a caller leaves a call in flight,
// before the caller returns. allowClose is called after the reply, when the cleanup of the call, if there is one,
// has been added. If s decides for several Stores (see Together), the Close of each of them waits.
func (s *Store) delayClose() {
	for _, part := range s.stores {
		part.cleanups.delay(1)
	}
}

// allowClose is the counterpart of delayClose.
func (s *Store) allowClose() {
	for _, part := range s.stores {
		part.cleanups.delay(-1)
	}
}

// delay adds n to the delays for which Close waits.
func (cs *cleanups) delay(n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.delays += n
}

// Beside is like [batch.Beside], for an f that makes a call to Redis: Close waits for f, whether or not the
// caller has left.
func (s *Store) Beside(ctx context.Context, f func() error) error {
	s.delayClose()
	return batch.Beside(ctx, func() error {
		defer s.allowClose()
		return f()
	}, nil)
}

// callerLeft frees what is held for d, whose caller left before the round trip ended with err. If err or
// the error of d is not nil, there is nothing left to do: d was not carried out, or finish or failEach has
// already freed what it holds.
func (s *Store) callerLeft(d *Call, err error) {
	if err == nil && d.err == nil {
		s.freeUnclaimed(d, nil)
	}
}

// undo returns the call that frees what d holds after d ended with err. It returns false if there is nothing
// to free. freeUnclaimed says what is freed.
func (d *Call) undo(err error) (call algorithm.Operation, holds bool) {
	if d.Handles == nil || d.Op != algorithm.OpCharge && d.Op != algorithm.OpReserve {
		return call, false
	}
	call = algorithm.Operation{Op: algorithm.OpRelease, N: d.N, Handles: make([]algorithm.Handle, len(d.Limits.limits))}
	if err != nil {
		if !replyLost(err) {
			return call, false
		}
		for i, m := range d.Limits.limits {
			if m.Slots {
				call.Handles[i], holds = algorithm.Handle{A: d.HoldID, B: 1}, true
			}
		}
		return call, holds
	}
	holds = d.Op == algorithm.OpReserve
	for i, m := range d.Limits.limits {
		if !d.Answers[i].Admits {
			return call, false
		}
		holds = holds || m.Slots || m.Delays
		if m.Delays {
			call.Op = algorithm.OpRefund
		}
	}
	if d.Op == algorithm.OpReserve {
		call.Op = algorithm.OpSettle
	}
	copy(call.Handles, d.Handles)
	return call, holds
}

// replyLost reports whether a call that ended with err may have been carried out.
func replyLost(err error) bool {
	var reply redis.Error
	switch {
	case errors.Is(err, health.ErrDown), errors.Is(err, ErrQueue), errors.Is(err, errHeldUp), errors.Is(err, batch.ErrRetryAlone),
		diagnose.IsDial(err), isUnsent(err):
		return false
	case errors.Is(err, algorithm.ErrPartly):
		return true
	}
	return !errors.As(err, &reply) || strings.Contains(reply.Error(), "other limits have changed")
}

// add sends a cleanup in the background. With OnlyCallers, it sends the cleanup before it returns, unless
// another goroutine is sending cleanups and will send this one, too. It drops the cleanup if too many wait.
func (cs *cleanups) add(s *Store, c cleanup) {
	switch {
	case !cs.note(c):
	case s.OnlyCallers:
		cs.free(s)
	default:
		go cs.free(s)
	}
}

// note adds a cleanup to the ones that wait, unless there are too many. It reports whether the caller must
// call free, because no goroutine is running it.
func (cs *cleanups) note(c cleanup) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.waiting) >= maxCleanups {
		return false
	}
	cs.waiting = append(cs.waiting, c)
	if cs.freeing {
		return false
	}
	cs.freeing = true
	cs.sending++
	return true
}

// begin counts a goroutine for which Close waits, until the goroutine calls end. It returns false, and
// counts nothing, if there are too many.
func (cs *cleanups) begin() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.sending >= maxCleanups {
		return false
	}
	cs.sending++
	return true
}

// Later runs f, which makes a call to Redis, in a goroutine for which Close waits, and then calls ended
// with the error of f. If there are too many such goroutines, or if OnlyCallers is set, Later runs nothing
// and returns false.
func (s *Store) Later(f func() error, ended func(error)) bool {
	if s.OnlyCallers || !s.cleanups.begin() {
		return false
	}
	go func() {
		defer s.cleanups.end()
		batch.CatchAll(f, ended)
	}()
	return true
}

// end is the counterpart of begin: a goroutine that begin has counted must call it when its work is done.
func (cs *cleanups) end() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.sending--
}

// free sends all cleanups that wait, each at most once, and returns when none is left. Cleanups for a server
// that is down wait until the server answers again. They are dropped when they are useless, or when s is
// closed. free must be called only if note has returned true.
func (cs *cleanups) free(s *Store) {
	for {
		cs.mu.Lock()
		all := slices.Clone(cs.waiting)
		if len(all) == 0 {
			cs.freeing = false
			cs.sending--
			cs.mu.Unlock()
			return
		}
		cs.mu.Unlock()

		sent := make([]bool, len(all))
		calls := make([]Background, len(all))
		for i, l := range all {
			calls[i] = Background{Limits: l.limits, Key: l.key, Begin: func() (algorithm.Operation, bool) {
				sent[i] = true
				return l.operation, time.Now().Before(l.until)
			}}
		}
		s.SendAll(context.Background(), calls)

		now, later, closed := time.Now(), []cleanup(nil), s.closed()
		for i, l := range all {
			if !sent[i] && now.Before(l.until) && !closed {
				later = append(later, l)
			}
		}
		cs.mu.Lock()
		cs.waiting = append(later, cs.waiting[len(all):]...)
		cs.mu.Unlock()
		if len(later) > 0 {
			time.Sleep(cleanupPause)
		}
	}
}

// wait waits until no counted goroutine is running and nothing delays Close, but no longer than the given time.
func (cs *cleanups) wait(longest time.Duration) {
	for end := time.Now().Add(longest); time.Now().Before(end); time.Sleep(time.Millisecond) {
		cs.mu.Lock()
		idle := cs.sending == 0 && cs.delays == 0
		cs.mu.Unlock()
		if idle {
			return
		}
	}
}
