package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

const (
	maxInFlight, maxBatches = 4, 2
	far                     = 100 * time.Millisecond
)

// A call is the request of one caller, with pointers to where its answer and its own error are written.
type call struct {
	key    string
	answer *string
	err    *error // its own error
}

// A server is a Batcher whose batches return when the test says so.
type server struct {
	*Batcher[call]

	t       *testing.T
	mu      sync.Mutex
	batches [][]string        // the keys in each batch
	returns []chan error      // sends the error with which each batch ends
	fails   map[string]error  // the errors of single calls, by key
	values  []context.Context // the context of each batch
	behind  []string          // the calls whose outcome was abandoned, with their errors
	leaving atomic.Int64      // how many callers have left calls whose outcome has not been abandoned yet
	callers sync.WaitGroup
}

func newServer(t *testing.T, maxBatch int) *server {
	p := &server{t: t, fails: map[string]error{}}
	p.Batcher = New(Bound{maxInFlight, maxBatches, maxBatch, 100, far}, weigh, p.run, func() { p.leaving.Add(1) }, p.left)
	return p
}

// left records a call whose caller has left.
func (p *server) left(c call, err error) {
	p.leaving.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behind = append(p.behind, fmt.Sprint(c.key, " ", cmp.Or(err, *c.err)))
}

// weigh returns 60 for a call whose key is "heavy", 101 for "too heavy", and else 1.
func weigh(c call) int64 {
	switch c.key {
	case "heavy":
		return 60
	case "too heavy":
		return 101
	}
	return 1
}

// run carries out a batch. It returns when the test calls end.
func (p *server) run(ctx context.Context, calls []call) error {
	var keys []string
	for _, c := range calls {
		keys = append(keys, c.key)
	}
	returns := make(chan error)
	p.mu.Lock()
	p.batches, p.returns = append(p.batches, keys), append(p.returns, returns)
	p.values = append(p.values, ctx)
	p.mu.Unlock()
	err := <-returns
	for _, c := range calls {
		*c.err, *c.answer = p.fails[c.key], c.key
	}
	switch {
	case errors.Is(err, errPanics):
		panic(err)
	case errors.Is(err, errExits):
		runtime.Goexit()
	}
	return err
}

// errPanics and errExits are the errors by which a test makes a batch panic or end its goroutine, as a hook
// of the client might.
var errPanics, errExits = errors.New("a panic of a hook"), errors.New("the end of its goroutine")

// fill makes as many calls as are sent alone, so that further calls wait.
func (p *server) fill() {
	p.t.Helper()
	for range maxInFlight {
		if _, way := p.Enter(p.t.Context(), call{}); way != Alone {
			p.t.Fatal("a call waits though few are in flight")
		}
	}
}

// A caller is the state of one call that waits.
type caller struct {
	answer string
	own    error
	err    error
	ended  bool
}

// call starts a caller, and returns once it waits.
func (p *server) call(ctx context.Context, key string) *caller {
	p.t.Helper()
	c := &caller{}
	place, way := p.Enter(ctx, call{key, &c.answer, &c.own})
	if way != Batched {
		p.t.Fatalf("%s need not wait", key)
	}
	p.callers.Go(func() {
		defer func() { c.ended = true }()
		if _, c.err = place.Wait(ctx, nil); c.err == nil {
			c.err = c.own
		}
	})
	synctest.Wait()
	return c
}

// end makes the i-th batch return err, and waits until everything that follows from it has happened.
func (p *server) end(i int, err error) {
	p.returns[i] <- err
	synctest.Wait()
}

func (p *server) sent(want ...string) {
	p.t.Helper()
	var got []string
	p.mu.Lock() // a timer may start a batch at the same time
	defer p.mu.Unlock()
	for _, f := range p.batches {
		got = append(got, strings.Join(f, ""))
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("batches %q, want %q", got, want)
	}
}

// leave ends one of the calls that were sent alone.
func (p *server) leave() { Place[call]{batcher: p.Batcher}.Release() }

// idle ends the given number of calls that were sent alone. It then checks that nothing waits or is in
// flight, so that the next call is sent alone.
func (p *server) idle(alone int) {
	p.t.Helper()
	for range alone {
		p.leave()
	}
	p.callers.Wait()
	synctest.Wait()
	if p.inFlight != 0 || len(p.waiting) != 0 || p.calls != 0 {
		p.t.Errorf("%d calls and batches are in flight, %d and %d wait", p.inFlight, p.calls, len(p.waiting))
	}
}

// start makes the next batch start.
func (p *server) start() {
	p.leave()
	synctest.Wait()
}

func withServer(t *testing.T, maxBatch int, test func(*testing.T, *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newServer(t, maxBatch)) }) // fails if a goroutine is left
}

// While four calls are in flight, further calls wait. They are sent in the order in which they came, as
// many as fit into one batch. A full batch starts as soon as one of the four in flight returns. So does
// a batch that is not full, unless round trips are short: then it starts only when at most one other
// call or batch is in flight.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, roundTrip := range []time.Duration{short / 2, 2 * short} {
		withServer(t, 3, func(t *testing.T, p *server) {
			p.fill()
			p.roundTrip = roundTrip
			var callers []*caller
			for i := range 8 {
				callers = append(callers, p.call(t.Context(), string(rune('a'+i))))
				time.Sleep(time.Second)
			}
			p.sent()
			p.start()
			p.sent("abc")
			p.start()
			p.sent("abc", "def")
			time.Sleep(roundTrip)
			p.end(1, nil)
			if roundTrip < short {
				p.sent("abc", "def")
				p.start()
				p.sent("abc", "def")
				p.start()
			} else {
				p.sent("abc", "def", "gh")
				p.start()
				p.start()
			}
			p.sent("abc", "def", "gh")
			if callers[0].ended || !callers[3].ended || callers[6].ended {
				t.Errorf("ended: %v, %v, %v; want only what has returned", callers[0].ended, callers[3].ended, callers[6].ended)
			}
			p.end(0, nil)
			p.end(2, nil)
			p.idle(0)
			for i, c := range callers {
				if c.err != nil || len(c.answer) != 1 {
					t.Errorf("caller %d: %v, %q", i, c.err, c.answer)
				}
			}
		})
	}
}

// A batch is also full if the next call is too heavy for it. A call that is too heavy for any batch is sent
// in a batch of its own.
func TestWeight(t *testing.T) {
	t.Parallel()
	withServer(t, 4, func(t *testing.T, p *server) {
		p.fill()
		for _, key := range []string{"a", "heavy", "b", "heavy", "c", "too heavy", "d", "e", "f", "g", "h"} {
			p.call(t.Context(), key)
		}
		p.start()
		for i := range 5 {
			p.end(i, nil)
		}
		p.sent("aheavyb", "heavyc", "too heavy", "defg", "h")
		p.idle(maxInFlight - 1)
	})
}

// A caller that cancels before its batch starts returns at once, and its call is not sent, even if it was
// the first of the batch. The other calls are sent. A batch whose callers have all canceled is not sent.
func TestCanceledBefore(t *testing.T) {
	t.Parallel()
	withServer(t, 3, func(t *testing.T, p *server) {
		p.fill()
		type key struct{}
		canceling, cancelAll := context.WithCancel(context.WithValue(t.Context(), key{}, "of the first"))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := p.call(canceling, "a")
		stays := p.call(t.Context(), "b")
		late := p.call(short, "c")
		var all []*caller
		for _, k := range []string{"d", "e", "f"} {
			all = append(all, p.call(canceling, k))
		}
		last := p.call(t.Context(), "g")
		cancelAll()
		time.Sleep(time.Second)
		synctest.Wait()
		for i, c := range append(all, first) {
			if !c.ended || !errors.Is(c.err, context.Canceled) {
				t.Errorf("caller %d: ended %v, %v", i, c.ended, c.err)
			}
		}
		if !late.ended || !errors.Is(late.err, context.DeadlineExceeded) {
			t.Errorf("ended %v, %v; want its own deadline", late.ended, late.err)
		}
		p.start()
		p.sent("b")
		if ctx := p.values[0]; ctx.Err() != nil || ctx.Value(key{}) != "of the first" {
			t.Errorf("the batch's context: %v, value %v", ctx.Err(), ctx.Value(key{}))
		}
		p.end(0, nil)
		p.sent("b", "g")
		p.end(1, nil)
		if stays.err != nil || last.err != nil || stays.answer != "b" || last.answer != "g" {
			t.Errorf("the others: %v, %v", stays.err, last.err)
		}
		p.idle(maxInFlight - 1)
	})
}

// A caller that cancels while its batch is in flight returns at once; the others have their
// answers.
func TestCanceledInFlight(t *testing.T) {
	t.Parallel()
	own, all := errors.New("its own error"), errors.New("that of all")
	for name, ended := range map[string]error{"its own error": nil, "that of all": all} {
		withServer(t, 3, func(t *testing.T, p *server) {
			p.fill()
			ctx, cancel := context.WithCancel(t.Context())
			canceled, stays := p.call(ctx, "a"), p.call(t.Context(), "b")
			p.start()
			cancel()
			synctest.Wait()
			if !canceled.ended || !errors.Is(canceled.err, context.Canceled) || stays.ended {
				t.Errorf("ended %v with %v; the other %v", canceled.ended, canceled.err, stays.ended)
			}
			p.sent("ab")
			p.fails["a"] = own
			p.end(0, ended)
			if !stays.ended || !errors.Is(stays.err, ended) {
				t.Errorf("the other: ended %v, %v", stays.ended, stays.err)
			}
			if want := []string{"a " + name}; !slices.Equal(p.behind, want) {
				t.Errorf("left behind: %q, want %q", p.behind, want)
			}
			p.idle(maxInFlight - 1)
		})
	}
}

// If the context of a caller ends when its batch has already ended, the caller receives the outcome,
// because nobody else may.
func TestTooLateToLeave(t *testing.T) {
	t.Parallel()
	withServer(t, 3, func(t *testing.T, p *server) {
		p.fill()
		place, _ := p.Enter(t.Context(), call{"a", new(string), new(error)})
		p.start()
		p.end(0, nil)
		gone, leave := context.WithCancel(t.Context())
		leave()
		for range 50 { // chance decides whether the end of the batch or of the context is seen first
			if _, err := place.Wait(gone, nil); err != nil {
				t.Fatal(err)
			}
		}
		p.idle(maxInFlight - 1)
	})
}

// The error of a batch is the error of all its calls. The error of a call belongs to this call alone. A
// batch that failed does not count as a round trip.
func TestErrors(t *testing.T) {
	t.Parallel()
	withServer(t, 3, func(t *testing.T, p *server) {
		p.fill()
		own, all := errors.New("of one"), errors.New("of all")
		p.fails["b"] = own
		var callers []*caller
		for _, k := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			callers = append(callers, p.call(t.Context(), k))
		}
		p.start()
		p.end(0, nil)
		time.Sleep(time.Minute)
		p.end(1, all)
		if took := p.roundTrip; took != 0 {
			t.Errorf("a round trip takes %v, by a batch that was not answered", took)
		}
		p.end(2, nil)
		for i, want := range []error{nil, own, nil, all, all, all, nil} {
			if !errors.Is(callers[i].err, want) {
				t.Errorf("caller %d: %v, want %v", i, callers[i].err, want)
			}
		}
		p.idle(maxInFlight - 1)
	})
}

// TestHookError makes a hook of the client panic or end its goroutine: all callers of the batch get one
// error, and the next batch is sent.
func TestHookError(t *testing.T) {
	t.Parallel()
	for end, want := range map[error]string{errPanics: "panicked: " + errPanics.Error(), errExits: "ended its goroutine"} {
		withServer(t, 2, func(t *testing.T, p *server) {
			p.fill()
			a, b, c := p.call(t.Context(), "a"), p.call(t.Context(), "b"), p.call(t.Context(), "c")
			p.start()
			p.end(0, end)
			for name, caller := range map[string]*caller{"a": a, "b": b} {
				var hook *HookError
				if !errors.As(caller.err, &hook) || !strings.Contains(hook.Error(), want) {
					t.Errorf("%s: %v, want a HookError: %s", name, caller.err, want)
				} else if inTest := strings.Contains(string(hook.Stack), "batch_test.go"); inTest != errors.Is(end, errPanics) {
					t.Errorf("%s: the stack is %q", name, hook.Stack)
				}
			}
			p.end(1, nil)
			if !c.ended || c.err != nil {
				t.Errorf("the next batch: ended %v, %v", c.ended, c.err)
			}
			p.idle(maxInFlight - 1)
		})
	}
}

// Many callers come and cancel at random. Each caller that stays gets its own answer, no batch exceeds its
// bound, and in the end nothing is in flight.
func TestCrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, crowd, calls = 7, 50, 40
		type sum struct {
			n   int
			out *int
		}
		var left, inFlight, gone atomic.Int64 // inFlight counts the calls in flight whose callers have left
		b := New(Bound{maxInFlight, maxBatches, most, 100, far}, func(sum) int64 { return 1 }, func(_ context.Context, calls []sum) error {
			if len(calls) < 1 || len(calls) > most {
				t.Errorf("%d calls", len(calls))
			}
			time.Sleep(time.Millisecond)
			for _, c := range calls {
				*c.out += c.n
			}
			return nil
		}, func() { inFlight.Add(1) }, func(sum, error) {
			left.Add(1)
			if n := inFlight.Add(-1); n < 0 {
				t.Errorf("%d callers have left a call in flight, want at least 0: an outcome was abandoned before its caller left", n)
			}
		})
		check.Together(crowd, func(i int) {
			for j := range calls {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*j%17)*300*time.Microsecond)
				var out int
				place, way := b.Enter(ctx, sum{i*calls + j, &out})
				if way == Alone {
					time.Sleep(time.Millisecond)
					place.Release()
				} else if _, err := place.Wait(ctx, nil); err == nil && out != i*calls+j {
					t.Errorf("caller %d has the answer %d, want %d", i, out, i*calls+j)
				} else if err != nil {
					gone.Add(1)
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
				cancel()
			}
		})
		time.Sleep(time.Second) // for batches whose callers have all canceled
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.inFlight != 0 || len(b.waiting) != 0 {
			t.Errorf("%d calls and batches are in flight, %d wait", b.inFlight, len(b.waiting))
		}
		if left.Load() == 0 || left.Load() >= gone.Load() {
			t.Errorf("%d outcomes were left behind by %d callers: some left before their batch was sent, and some after", left.Load(), gone.Load())
		}
		if n := inFlight.Load(); n != 0 {
			t.Errorf("%d callers have left a call in flight, want 0", n)
		}
	})
}

// TestBeside makes callers leave a call at every moment. Either the caller or late receives the outcome,
// never both.
func TestBeside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the call's own")
		for left := range 21 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(left)*time.Millisecond)
			late, begun := 0, time.Now()
			err := Beside(ctx, func() error {
				time.Sleep(10 * time.Millisecond)
				return cause
			}, func(err error) {
				late++
				if !errors.Is(err, cause) {
					t.Errorf("late: %v", err)
				}
			})
			if took := time.Since(begun); took != min(10*time.Millisecond, time.Duration(left)*time.Millisecond) {
				t.Errorf("left after %d ms: it took %v", left, took)
			}
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			if own := errors.Is(err, cause); own == (late == 1) || !own && !errors.Is(err, context.DeadlineExceeded) || late > 1 {
				t.Errorf("left after %d ms: %v, and %d late", left, err, late)
			}
			cancel()
		}
		for _, end := range []func(){func() { panic("a hook") }, runtime.Goexit} {
			if err := Beside(t.Context(), func() error { end(); return nil }, nil); !errors.As(err, new(*HookError)) {
				t.Errorf("%v, want a HookError", err)
			}
		}
	})
}
