package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// A decision is what one caller asks.
type decision struct {
	key    string
	n      int64
	charge bool
	into   []reading

	gone bool  // the caller has left before the flight
	err  error // why there is no answer to this one
}

// errAlone tells a caller to ask again, alone: nothing was decided.
var errAlone = errors.New("to be asked again, alone")

// A batch is decisions that fly together.
type batch struct {
	ctx       context.Context //nolint:containedctx // of the first caller; it may leave, and the batch flies on
	since     time.Time
	decisions []decision
	departed  bool
	err       error // of all
	done      chan struct{}
}

// A flyFunc asks the server for decisions, of which the first has waited since an
// instant. Its error is that of all; each may have one of its own.
type flyFunc func(ctx context.Context, since time.Time, ds []*decision) error

// width is how many flights are under way before anybody waits. One alone leaves
// the server idle while the process works, and the other way round: at 64 callers
// two do 1.4 times as much. Four do no more than two, but a few callers need not
// wait at all then, and on a slow network others wait for a fraction of a flight.
const width = 4

// A lane is the way to one server. While width flights are under way, whoever
// comes waits for the next to land: so the more come, the more fly together.
type lane struct {
	most int
	fly  flyFunc

	mu      sync.Mutex
	flights int
	waiting []*batch // all but the last are full
}

// enter has d leave at once, alone, if few are under way: the caller must then
// leave the lane. Otherwise d waits, at a place in the batch that is returned.
func (l *lane) enter(ctx context.Context, d decision) (b *batch, place int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights < width {
		l.flights++
		return nil, 0
	}
	last := len(l.waiting) - 1
	if last < 0 || len(l.waiting[last].decisions) == l.most {
		l.waiting = append(l.waiting, &batch{ctx: context.WithoutCancel(ctx), since: time.Now(), done: make(chan struct{})})
		last++
	}
	b = l.waiting[last]
	b.decisions = append(b.decisions, d)
	return b, len(b.decisions) - 1
}

// leave has those fly who came meanwhile.
func (l *lane) leave() {
	if b := l.next(); b != nil {
		go l.flyAll(b)
	}
}

// next takes the batch that is to fly after one that landed, if there is one.
func (l *lane) next() *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.flights--
		return nil
	}
	b := l.waiting[0]
	l.waiting[0] = nil // what its callers asked is not to outlive them
	l.waiting = l.waiting[1:]
	b.departed = true
	return b
}

func (l *lane) flyAll(b *batch) {
	for ; b != nil; b = l.next() {
		aboard := make([]*decision, 0, len(b.decisions))
		for i := range b.decisions {
			if !b.decisions[i].gone {
				aboard = append(aboard, &b.decisions[i])
			}
		}
		if len(aboard) > 0 {
			b.err = caught(func() error { return l.fly(b.ctx, b.since, aboard) })
		}
		close(b.done)
		runtime.Gosched() // who has just landed may come again, and share the next flight
	}
}

// wait waits for the answer to the decision at a place of b.
func (l *lane) wait(ctx context.Context, b *batch, place int) error {
	select {
	case <-b.done:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		if !b.departed {
			b.decisions[place].gone = true
		}
		return ctx.Err()
	}
	if b.err != nil {
		return passedOn(b.err)
	}
	return b.decisions[place].err
}

// A panicked is what a call panicked with, and where, on its way to the goroutine
// that waits for it: on one of ours nobody could recover, and the process would
// end.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Unwrap returns the value, if it is an error.
func (p *panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// caught makes a call whose panic is its error.
func caught(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{value, debug.Stack()}
		}
	}()
	return f()
}

// passedOn returns err, and panics with what was caught.
func passedOn(err error) error {
	if p := (*panicked)(nil); errors.As(err, &p) {
		panic(p)
	}
	return err
}
