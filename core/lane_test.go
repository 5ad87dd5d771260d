package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A port is a lane whose flights a test holds and lands.
type port struct {
	*lane

	t       *testing.T
	mu      sync.Mutex
	flights [][]string        // the keys aboard
	since   []time.Time       // of each flight
	landing []chan error      // how each flight is to end
	fails   map[string]error  // of one decision
	values  []context.Context // of each flight
	callers sync.WaitGroup
}

func newPort(t *testing.T, most int) *port {
	p := &port{t: t, fails: map[string]error{}}
	p.lane = &lane{most: most, fly: p.take}
	return p
}

// take is the flight: it ends when the test lands it.
func (p *port) take(ctx context.Context, since time.Time, ds []*decision) error {
	var keys []string
	for _, d := range ds {
		keys = append(keys, d.key)
	}
	land := make(chan error)
	p.mu.Lock()
	p.flights, p.since, p.landing = append(p.flights, keys), append(p.since, since), append(p.landing, land)
	p.values = append(p.values, ctx)
	p.mu.Unlock()
	err := <-land
	for _, d := range ds {
		d.err = p.fails[d.key]
		d.into[0].t = int64(len(d.key))
	}
	if err != nil && strings.HasPrefix(err.Error(), "panic") {
		panic(err)
	}
	return err
}

// plug has as many fly alone as may before anybody waits.
func (p *port) plug() {
	p.t.Helper()
	for range width {
		if b, _ := p.enter(p.t.Context(), decision{}); b != nil {
			p.t.Fatal("waits though few are under way")
		}
	}
}

// A caller is one who waits, and how it ended.
type caller struct {
	into  []reading
	err   error
	ended bool
	panic any
}

// call has somebody wait, and returns once they stand in line.
func (p *port) call(ctx context.Context, key string) *caller {
	p.t.Helper()
	c := &caller{into: make([]reading, 1)}
	b, place := p.enter(ctx, decision{key: key, n: 1, into: c.into})
	if b == nil {
		p.t.Fatalf("%s need not wait", key)
	}
	p.callers.Go(func() {
		defer func() { c.panic, c.ended = recover(), true }()
		c.err = p.wait(ctx, b, place)
	})
	synctest.Wait()
	return c
}

// land ends the flight that began as the i-th, and waits until what follows from it has happened.
func (p *port) land(i int, err error) {
	p.landing[i] <- err
	synctest.Wait()
}

func (p *port) aboard(want ...string) {
	p.t.Helper()
	var got []string
	for _, f := range p.flights {
		got = append(got, strings.Join(f, ""))
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("flights %q, want %q", got, want)
	}
}

// empty checks that nobody waits, nothing flies, and nobody who comes now would wait.
func (p *port) empty() {
	p.t.Helper()
	p.callers.Wait()
	synctest.Wait()
	if p.lane.flights != 0 || len(p.waiting) != 0 {
		p.t.Errorf("%d flights and %d batches are left", p.lane.flights, len(p.waiting))
	}
}

func inLane(t *testing.T, most int, story func(*testing.T, *port)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { story(t, newPort(t, most)) }) // fails where a goroutine is left
}

// Whoever comes while four are under way waits for one to land. Then those who
// waited fly in the order in which they came, as many together as may, and one
// more flight begins with each that lands.
func TestLaneInOrder(t *testing.T) {
	t.Parallel()
	inLane(t, 3, func(t *testing.T, p *port) {
		p.plug()
		began := time.Now()
		var callers []*caller
		for i := range 8 {
			callers = append(callers, p.call(t.Context(), string(rune('a'+i))))
			time.Sleep(time.Second)
		}
		p.aboard()
		p.leave()
		synctest.Wait()
		p.aboard("abc")
		p.leave()
		synctest.Wait()
		p.aboard("abc", "def")
		p.land(1, nil)
		p.aboard("abc", "def", "gh")
		if callers[0].ended || !callers[3].ended || callers[6].ended {
			t.Errorf("ended: %v, %v, %v; want only what has landed", callers[0].ended, callers[3].ended, callers[6].ended)
		}
		for i, flight := range p.since {
			if want := began.Add(time.Duration(3*i) * time.Second); !flight.Equal(want) {
				t.Errorf("flight %d counts from %v, want %v: when its first came", i, flight.Sub(began), want.Sub(began))
			}
		}
		p.land(0, nil)
		p.land(2, nil)
		p.leave()
		p.leave()
		p.empty()
		for i, c := range callers {
			if c.err != nil || c.into[0].t != 1 {
				t.Errorf("caller %d: %v, %+v", i, c.err, c.into)
			}
		}
	})
}

// Nobody waits once all have landed, and again four fly before anybody does.
func TestLaneAgain(t *testing.T) {
	t.Parallel()
	inLane(t, 2, func(t *testing.T, p *port) {
		for range 3 {
			p.plug()
			p.call(t.Context(), "a")
			for range width {
				p.leave()
			}
			synctest.Wait()
			p.land(len(p.landing)-1, nil)
			p.empty()
		}
		p.aboard("a", "a", "a")
	})
}

// Who leaves before the flight is told so at once and is not aboard; whoever it
// was, the others fly. A batch that all have left does not fly.
func TestLaneLeftBefore(t *testing.T) {
	t.Parallel()
	inLane(t, 3, func(t *testing.T, p *port) {
		p.plug()
		type key struct{}
		leaving, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "of the first"))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := p.call(leaving, "a")
		stays := p.call(t.Context(), "b")
		late := p.call(short, "c")
		var all []*caller
		for _, k := range []string{"d", "e", "f"} {
			all = append(all, p.call(leaving, k))
		}
		last := p.call(t.Context(), "g")
		leave()
		time.Sleep(time.Second)
		synctest.Wait()
		for i, c := range append(all, first) {
			if !c.ended || !errors.Is(c.err, context.Canceled) {
				t.Errorf("leaver %d: ended %v, %v", i, c.ended, c.err)
			}
		}
		if !late.ended || !errors.Is(late.err, context.DeadlineExceeded) {
			t.Errorf("ended %v, %v; want its own deadline", late.ended, late.err)
		}
		p.leave()
		synctest.Wait()
		p.aboard("b")
		if ctx := p.values[0]; ctx.Err() != nil || ctx.Value(key{}) != "of the first" {
			t.Errorf("the flight's context: %v, value %v", ctx.Err(), ctx.Value(key{}))
		}
		p.land(0, nil)
		p.aboard("b", "g")
		p.land(1, nil)
		if stays.err != nil || last.err != nil || stays.into[0].t != 1 || last.into[0].t != 1 {
			t.Errorf("those who stayed: %v, %v", stays.err, last.err)
		}
		for range width - 1 {
			p.leave()
		}
		p.empty()
	})
}

// Who leaves during the flight is told so at once. It was aboard, and the others
// have their answers.
func TestLaneLeftDuring(t *testing.T) {
	t.Parallel()
	inLane(t, 3, func(t *testing.T, p *port) {
		p.plug()
		ctx, cancel := context.WithCancel(t.Context())
		leaves, stays := p.call(ctx, "a"), p.call(t.Context(), "b")
		p.leave()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !leaves.ended || !errors.Is(leaves.err, context.Canceled) || stays.ended {
			t.Errorf("ended %v with %v; the other %v", leaves.ended, leaves.err, stays.ended)
		}
		p.aboard("ab")
		p.land(0, nil)
		if !stays.ended || stays.err != nil {
			t.Errorf("who stayed: ended %v, %v", stays.ended, stays.err)
		}
		for range width - 1 {
			p.leave()
		}
		p.empty()
	})
}

// The error of a flight is that of all aboard, that of a decision only its own.
func TestLaneErrors(t *testing.T) {
	t.Parallel()
	inLane(t, 3, func(t *testing.T, p *port) {
		p.plug()
		own, all := errors.New("of one"), errors.New("of all")
		p.fails["b"] = own
		var callers []*caller
		for _, k := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			callers = append(callers, p.call(t.Context(), k))
		}
		p.leave()
		synctest.Wait()
		p.land(0, nil)
		p.land(1, all)
		p.land(2, nil)
		for i, want := range []error{nil, own, nil, all, all, all, nil} {
			if !errors.Is(callers[i].err, want) {
				t.Errorf("caller %d: %v, want %v", i, callers[i].err, want)
			}
		}
		for range width - 1 {
			p.leave()
		}
		p.empty()
	})
}

// A hook of the client's that panics does so for each who is aboard, as it would
// have if each had flown alone: whoever recovers goes on, and so does the lane.
func TestLanePanics(t *testing.T) {
	t.Parallel()
	inLane(t, 2, func(t *testing.T, p *port) {
		p.plug()
		a, b, c := p.call(t.Context(), "a"), p.call(t.Context(), "b"), p.call(t.Context(), "c")
		p.leave()
		synctest.Wait()
		cause := errors.New("panic of a hook")
		p.land(0, cause)
		for _, c := range []*caller{a, b} {
			err, ok := c.panic.(error)
			if !ok || !errors.Is(err, cause) || !strings.Contains(err.Error(), "lane_test.go") {
				t.Errorf("panicked with %v; want the cause, and where it was", c.panic)
			}
		}
		p.land(1, nil)
		if !c.ended || c.err != nil || c.panic != nil {
			t.Errorf("who flew next: ended %v, %v, %v", c.ended, c.err, c.panic)
		}
		for range width - 1 {
			p.leave()
		}
		p.empty()
	})
}

// A crowd comes and goes at random for a while: each who stays has the own answer,
// no flight is larger than it may be, and in the end nobody is left.
func TestLaneCrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, crowd, calls = 7, 50, 40
		l := &lane{most: most}
		l.fly = func(_ context.Context, _ time.Time, ds []*decision) error {
			if len(ds) < 1 || len(ds) > most {
				t.Errorf("%d aboard", len(ds))
			}
			time.Sleep(time.Millisecond)
			for _, d := range ds {
				d.into[0].x += d.n
			}
			return nil
		}
		var wg sync.WaitGroup
		for i := range crowd {
			wg.Go(func() {
				for j := range calls {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*j%17)*300*time.Microsecond)
					into := make([]reading, 1)
					b, place := l.enter(ctx, decision{key: fmt.Sprint(i), n: int64(i*calls + j), into: into})
					if b == nil {
						time.Sleep(time.Millisecond)
						l.leave()
					} else if err := l.wait(ctx, b, place); err == nil && into[0].x != int64(i*calls+j) {
						t.Errorf("caller %d has the answer %d, want %d", i, into[0].x, i*calls+j)
					} else if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second) // for flights that all aboard have left
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.flights != 0 || len(l.waiting) != 0 {
			t.Errorf("%d flights and %d batches are left", l.flights, len(l.waiting))
		}
	})
}

// A budget ends with the time a call may take, less at most 1/64 of it, or with
// the caller's deadline if that is first. Those of one moment share a timer.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 640 * time.Millisecond
		b := &budgets{timeout: timeout}
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "caller's")
		began := time.Now()
		first := b.of(ctx)
		time.Sleep(timeout / 64)
		second := b.of(ctx)
		time.Sleep(time.Nanosecond)
		third := b.of(ctx)
		for i, want := range []time.Duration{timeout, timeout, timeout + timeout/64 + 1} {
			c := []context.Context{first, second, third}[i]
			if deadline, ok := c.Deadline(); !ok || deadline.Sub(began) != want {
				t.Errorf("budget %d ends after %v, want %v", i, deadline.Sub(began), want)
			}
			if c.Value(key{}) != "caller's" || c.Err() != nil {
				t.Errorf("budget %d: value %v, %v", i, c.Value(key{}), c.Err())
			}
		}
		if first.Done() != second.Done() || first.Done() == third.Done() {
			t.Error("two of one moment do not share a timer, or a later one does")
		}
		earlier, cancel := context.WithTimeout(ctx, timeout/2)
		defer cancel()
		if c := b.of(earlier); c != earlier {
			t.Errorf("the caller's deadline is first, and the budget is %v", c)
		}
		later, cancel := context.WithTimeout(ctx, 2*timeout)
		defer cancel()
		if deadline, _ := b.of(later).Deadline(); deadline.After(time.Now().Add(timeout)) {
			t.Error("the caller's later deadline counts")
		}
		<-first.Done()
		if took := time.Since(began); took != timeout || !errors.Is(first.Err(), context.DeadlineExceeded) || third.Err() != nil {
			t.Errorf("after %v: %v, and a later one: %v", took, first.Err(), third.Err())
		}
		<-third.Done()
		derived, cancel := context.WithCancel(third)
		defer cancel()
		<-derived.Done()
		if !errors.Is(derived.Err(), context.DeadlineExceeded) {
			t.Errorf("what was derived from it: %v", derived.Err())
		}
	})
}
