package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lines are the waiters of a Limiter, in one line for each key. The first in a
// line is the one that asks the store.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*line
}

// A line is those who wait for one key, behind the first.
type line struct {
	waiting []chan struct{} // closed when it is their turn
	retryAt atomic.Int64    // when the first asks again, in Unix nanoseconds; 0 before it asked
}

// join waits until the caller is the first in the line of key. After join has
// succeeded the caller must leave.
func (ls *lines) join(ctx context.Context, key string) (*line, error) {
	ls.mu.Lock()
	l := ls.byKey[key]
	if l == nil {
		if ls.byKey == nil {
			ls.byKey = make(map[string]*line)
		}
		l = &line{}
		ls.byKey[key] = l
		ls.mu.Unlock()
		return l, nil
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.UnixNano() < l.retryAt.Load() {
		ls.mu.Unlock()
		return nil, fmt.Errorf("redislimit: the first in line waits until %v: %w",
			time.Unix(0, l.retryAt.Load()), context.DeadlineExceeded)
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	ls.mu.Unlock()

	select {
	case <-turn:
		return l, nil
	case <-ctx.Done():
		ls.giveUp(key, l, turn)
		return nil, ctx.Err()
	}
}

// giveUp takes turn out of the line, or passes it on if it came just now.
func (ls *lines) giveUp(key string, l *line, turn chan struct{}) {
	ls.mu.Lock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		ls.mu.Unlock()
		return
	}
	ls.mu.Unlock()
	ls.leave(key)
}

// leave ends the caller's turn and lets the next in line have theirs.
func (ls *lines) leave(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[key]
	if len(l.waiting) == 0 {
		delete(ls.byKey, key)
		return
	}
	l.retryAt.Store(0)
	close(l.waiting[0])
	l.waiting = l.waiting[1:]
}
