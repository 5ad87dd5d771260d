package core

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// waitQueues are the callers that wait in a Limiter, in one queue for each key. Only
// the first in a queue asks for a decision.
type waitQueues struct {
	mu    sync.Mutex
	byKey map[string]*waitQueue
}

// A waitQueue is the callers that wait for one key.
type waitQueue struct {
	waiting []chan struct{}           // of all but the first; each is closed when its caller becomes the first
	retryAt atomic.Pointer[time.Time] // when the first asks again; nil before it has asked
	freed   chan struct{}             // closed when slots are freed in this process; nil if nobody waits for that
}

// join waits until the caller is the first in the queue of key. Unless it returns an
// error, the caller must call leave.
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
		return nil, fmt.Errorf("redislimit: the first in the queue waits until %v: %w",
			retryAt, context.DeadlineExceeded)
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

// giveUp takes turn out of the queue. If the caller has become the first meanwhile,
// it leaves.
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

// leave removes the first in the queue of key, which makes the next one the first.
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

// awaitFreed returns a channel that is closed when slots of the key are freed in this process.
func (qs *waitQueues) awaitFreed(q *waitQueue) <-chan struct{} {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q.freed == nil {
		q.freed = make(chan struct{})
	}
	return q.freed
}

// free wakes who waits for slots of key.
func (qs *waitQueues) free(key string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[key]; q != nil && q.freed != nil {
		close(q.freed)
		q.freed = nil
	}
}
