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
	// maxCleanups bounds what waits to be freed: the overflow expires.
	maxCleanups = 10_000
	// cleanupPause is how often a server that is down is looked at.
	cleanupPause = 50 * time.Millisecond
)

// cleanups are what is held for callers that have left, until it is freed.
type cleanups struct {
	mu      sync.Mutex
	waiting []cleanup
	freeing bool // by the goroutine that frees what waits
	sending int  // goroutines that free something
}

// A cleanup is what is to be done with one key, until an instant: it has expired then.
type cleanup struct {
	limits *Limits
	key    string
	call   algorithm.HoldCall
	until  time.Time
}

// freeAbandoned frees what is held for d, whose reply nobody takes: its caller has left, or got an
// error. What was charged by a plain decision stays. If the reply is lost, only slots are freed, by
// the id that they were asked for with; units expire.
func (s *Store) freeAbandoned(d *Call, err error) {
	call, holds := d.undo(err)
	if !holds {
		return
	}
	longest := int64(0)
	for _, m := range d.Limits.members {
		longest = max(longest, m.Hold)
	}
	s.freeLater(d, call, time.Duration(longest)*time.Microsecond)
}

// freeLater has a call about the key of d be made in the background, once, unless that takes so
// long that it is too late.
func (s *Store) freeLater(d *Call, call algorithm.HoldCall, within time.Duration) {
	s.cleanups.add(s, cleanup{d.Limits, d.Key, call, time.Now().Add(within)})
}

// abandoned frees what is held for d, whose caller left before it ended. After an error finish or
// failEach has freed it.
func (s *Store) abandoned(d *Call, err error) {
	if err == nil && d.err == nil {
		s.freeAbandoned(d, nil)
	}
}

// undo returns the call that frees what d holds. It reports false if that is nothing.
func (d *Call) undo(err error) (call algorithm.HoldCall, holds bool) {
	if d.Handles == nil || d.Op != algorithm.OpCharge && d.Op != algorithm.OpReserve {
		return call, false
	}
	call = algorithm.HoldCall{Op: algorithm.OpRelease, N: d.N, Handles: make([]algorithm.Handle, len(d.Limits.members))}
	if err != nil {
		if !replyLost(err) {
			return call, false
		}
		for i, m := range d.Limits.members {
			if m.Slots {
				call.Handles[i], holds = algorithm.Handle{A: d.M, B: 1}, true
			}
		}
		return call, holds
	}
	holds = d.Op == algorithm.OpReserve
	for i, m := range d.Limits.members {
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

// replyLost reports whether a call may have been carried out whose error is err.
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

// add has what a call holds freed in the background.
func (cs *cleanups) add(s *Store, c cleanup) {
	switch {
	case !cs.note(c):
	case s.driven:
		cs.free(s)
	default:
		go cs.free(s)
	}
}

// note has a cleanup wait. It reports whether the caller is to free what waits: nobody does yet.
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

// begin notes a goroutine that ends something for a caller that may leave. It reports false if
// there are too many.
func (cs *cleanups) begin() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.sending >= maxCleanups {
		return false
	}
	cs.sending++
	return true
}

// Later runs f, which asks Redis, in a goroutine that Close waits for, and then ended with its
// error. It reports false, and runs nothing, if there are too many, or s is driven.
func (s *Store) Later(f func() error, ended func(error)) bool {
	if s.driven || !s.cleanups.begin() {
		return false
	}
	go func() {
		defer s.cleanups.end()
		batch.CatchAll(f, ended)
	}()
	return true
}

func (cs *cleanups) end() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.sending--
}

// free frees all that waits, and ends when nothing does. What is of a server that is down waits
// until that answers again, or s is closed.
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
			calls[i] = Background{Limits: l.limits, Key: l.key, Begin: func() (algorithm.HoldCall, bool) {
				sent[i] = true
				return l.call, time.Now().Before(l.until)
			}}
		}
		s.RunAll(context.Background(), calls)

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

// wait waits until nothing is left, for so long at most.
func (cs *cleanups) wait(longest time.Duration) {
	for end := time.Now().Add(longest); time.Now().Before(end); time.Sleep(time.Millisecond) {
		cs.mu.Lock()
		sending := cs.sending
		cs.mu.Unlock()
		if sending == 0 {
			return
		}
	}
}
