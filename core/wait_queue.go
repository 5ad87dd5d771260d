package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// waitQueues are the callers that wait in a Limiter, in one queue for each key. The
// first in a queue is the one that asks the store.
type waitQueues struct {
	mu    sync.Mutex
	byKey map[string]*waitQueue
}

// A waitQueue is the callers that wait for one key, behind the first.
type waitQueue struct {
	waiting []chan struct{}           // each closed when it is that caller's turn
	retryAt atomic.Pointer[time.Time] // when the first asks again; nil before it has asked
}

// join waits until the caller is the first in the queue of key. After join has
// succeeded the caller must leave.
func (qs *waitQueues) join(ctx context.Context, key string) (*waitQueue, error) {
	qs.mu.Lock()
	q := qs.byKey[key]
	if q == nil {
		if qs.byKey == nil {
			qs.byKey = make(map[string]*waitQueue)
		}
		q = &waitQueue{}
		qs.byKey[key] = q
		qs.mu.Unlock()
		return q, nil
	}
	deadline, ok := ctx.Deadline()
	if retryAt := q.retryAt.Load(); ok && retryAt != nil && deadline.Before(*retryAt) {
		qs.mu.Unlock()
		return nil, fmt.Errorf("redislimit: the first in the queue waits until %v: %w", retryAt, context.DeadlineExceeded)
	}
	turn := make(chan struct{})
	q.waiting = append(q.waiting, turn)
	qs.mu.Unlock()

	select {
	case <-turn:
		return q, nil
	case <-ctx.Done():
		qs.giveUp(key, q, turn)
		return nil, ctx.Err()
	}
}

// giveUp takes turn out of the queue, or passes it on if it came just now.
func (qs *waitQueues) giveUp(key string, q *waitQueue, turn chan struct{}) {
	qs.mu.Lock()
	if i := slices.Index(q.waiting, turn); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		qs.mu.Unlock()
		return
	}
	qs.mu.Unlock()
	qs.leave(key)
}

// leave ends the caller's turn and begins that of the next in the queue.
func (qs *waitQueues) leave(key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[key]
	if len(q.waiting) == 0 {
		delete(qs.byKey, key)
		return
	}
	q.retryAt.Store(nil)
	close(q.waiting[0])
	q.waiting = q.waiting[1:]
}
