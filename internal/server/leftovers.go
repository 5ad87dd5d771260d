package server

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
)

const (
	// maxLeftovers bounds what waits to be freed: the overflow expires.
	maxLeftovers = 10_000
	// leftoverPause is how often a server that is down is looked at.
	leftoverPause = 50 * time.Millisecond
)

// leftovers are what is held for callers that have left, until it is freed.
type leftovers struct {
	mu      sync.Mutex
	waiting []leftover
	freeing bool // by the goroutine that frees what waits
	sending int  // goroutines that free something
}

// A leftover is what is to be done with one key, until an instant: it has expired then.
type leftover struct {
	limits *Limits
	key    string
	call   algorithm.HoldCall
	until  time.Time
}

// leftBehind frees what is held for d, whose reply nobody takes: its caller has left, or got an
// error. What was charged by a plain decision stays. If the reply is lost, only slots are freed, by
// the id that they were asked for with; units expire.
func (s *Store) leftBehind(d *Call, err error) {
	call, left := d.leftover(err)
	if !left {
		return
	}
	longest := int64(0)
	for _, m := range d.Limits.members {
		longest = max(longest, m.Hold)
	}
	s.leave(d, call, time.Duration(longest)*time.Microsecond)
}

// leave has a call about the key of d be made in the background, once, unless that takes so long that it is too late.
func (s *Store) leave(d *Call, call algorithm.HoldCall, within time.Duration) {
	s.leftovers.add(s, leftover{d.Limits, d.Key, call, time.Now().Add(within)})
}

// abandoned frees what is held for d, whose caller left before it ended. After an error that is done.
func (s *Store) abandoned(d *Call, err error) {
	if err == nil && d.err == nil {
		s.leftBehind(d, nil)
	}
}

// leftover returns the call that frees what d holds; left is false if that is nothing.
func (d *Call) leftover(err error) (call algorithm.HoldCall, left bool) {
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
				call.Handles[i], left = algorithm.Handle{A: d.M, B: 1}, true
			}
		}
		return call, left
	}
	left = d.Op == algorithm.OpReserve
	for i, m := range d.Limits.members {
		if !d.Answers[i].Admits {
			return call, false
		}
		left = left || m.Slots || m.Delays
		if m.Delays {
			call.Op = algorithm.OpRefund
		}
	}
	if d.Op == algorithm.OpReserve {
		call.Op = algorithm.OpSettle
	}
	copy(call.Handles, d.Handles)
	return call, left
}

// replyLost reports whether a call may have been carried out whose error is err.
func replyLost(err error) bool {
	var reply redis.Error
	switch {
	case errors.Is(err, ErrBreakerOpen), errors.Is(err, ErrQueue), errors.Is(err, errHeldUp), errors.Is(err, batch.ErrRetryAlone),
		isDial(err), isUnsent(err):
		return false
	case errors.Is(err, algorithm.ErrPartly):
		return true
	}
	return !errors.As(err, &reply) || strings.Contains(reply.Error(), "other limits have changed")
}

// add has a leftover freed in the background.
func (ls *leftovers) add(s *Store, l leftover) {
	switch {
	case !ls.note(l):
	case s.driven:
		ls.free(s)
	default:
		go ls.free(s)
	}
}

// note has a leftover wait. It reports whether nobody frees what waits.
func (ls *leftovers) note(l leftover) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.waiting) >= maxLeftovers {
		return false
	}
	ls.waiting = append(ls.waiting, l)
	if ls.freeing {
		return false
	}
	ls.freeing = true
	ls.sending++
	return true
}

// begin notes a goroutine that ends something for a caller that does not wait. It reports false if
// there are too many.
func (ls *leftovers) begin() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.sending >= maxLeftovers {
		return false
	}
	ls.sending++
	return true
}

// Later runs f, which asks Redis, in a goroutine that Close waits for, and then ended with its error. It
// reports false, and runs nothing, if there are too many.
func (s *Store) Later(f func() error, ended func(error)) bool {
	if s.driven || !s.leftovers.begin() {
		return false
	}
	go func() {
		defer s.leftovers.end()
		ended(batch.Catch(f))
	}()
	return true
}

func (ls *leftovers) end() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.sending--
}

// free frees all that waits, and ends when nothing does. What is of a server that is down waits
// until that answers again, or s is closed.
func (ls *leftovers) free(s *Store) {
	for {
		ls.mu.Lock()
		all := slices.Clone(ls.waiting)
		if len(all) == 0 {
			ls.freeing = false
			ls.sending--
			ls.mu.Unlock()
			return
		}
		ls.mu.Unlock()

		sent := make([]bool, len(all))
		calls := make([]Background, len(all))
		for i, l := range all {
			calls[i] = Background{Limits: l.limits, Key: l.key, Begin: func() (algorithm.HoldCall, bool) {
				sent[i] = true
				return l.call, time.Now().Before(l.until)
			}}
		}
		s.RunAll(context.Background(), calls)

		now, later, closed := time.Now(), []leftover(nil), s.closed.Load()
		for i, l := range all {
			if !sent[i] && now.Before(l.until) && !closed {
				later = append(later, l)
			}
		}
		ls.mu.Lock()
		ls.waiting = append(later, ls.waiting[len(all):]...)
		ls.mu.Unlock()
		if len(later) > 0 {
			time.Sleep(leftoverPause)
		}
	}
}

// wait waits until nothing is left, for so long at most.
func (ls *leftovers) wait(longest time.Duration) {
	for end := time.Now().Add(longest); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ls.mu.Lock()
		sending := ls.sending
		ls.mu.Unlock()
		if sending == 0 {
			return
		}
	}
}
