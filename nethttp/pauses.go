package httplimit

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// maxPauses bounds how many keys are held back in this process alone, at about 50 bytes each. Beyond it,
// the key that would be free first is forgotten.
const maxPauses = 10_000

// pauses says until when keys are held back in this process. It stores the hashes of keys, because keys may
// be long.
type pauses struct {
	seed maphash.Seed

	mu    sync.Mutex
	until map[uint64]time.Time
}

func newPauses() *pauses { return &pauses{seed: maphash.MakeSeed(), until: make(map[uint64]time.Time)} }

// left returns how much longer key is held back; 0 or less if it is not.
func (p *pauses) left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.until) == 0 {
		return 0
	}
	return time.Until(p.until[maphash.String(p.seed, key)])
}

// extend holds back key until the given instant, unless it is held back for longer already.
func (p *pauses) extend(key string, until time.Time) {
	hash := maphash.String(p.seed, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.until[hash]) {
		p.until[hash] = until
	}
	if len(p.until) <= maxPauses {
		return
	}
	first, now := hash, time.Now()
	for h, ends := range p.until {
		if ends.Before(now) {
			delete(p.until, h)
		} else if ends.Before(p.until[first]) {
			first = h
		}
	}
	if len(p.until) > maxPauses {
		delete(p.until, first)
	}
}

// wait waits until key is not held back. It fails at once if the deadline of ctx comes before that.
func (p *pauses) wait(ctx context.Context, key string) error {
	for {
		d := p.left(key)
		if d <= 0 {
			return nil
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
			return fmt.Errorf("httplimit: the server asked to send no request for another %v: %w", d, context.DeadlineExceeded)
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
