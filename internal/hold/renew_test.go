package hold

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// A fakeKeeper carries out renewals as a test says, and notes how Holds end.
type fakeKeeper struct {
	renew    func(handles []algorithm.Handle) ([]algorithm.Handle, error)
	renewals atomic.Int32

	mu    sync.Mutex
	ended []Ending
}

func (k *fakeKeeper) End(_ context.Context, e Ending) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = append(k.ended, e)
	return nil
}

func (k *fakeKeeper) Renew(all []*Renewal) {
	for _, r := range all {
		if handles := r.Begin(); handles != nil {
			k.renewals.Add(1)
			r.End(k.renew(handles))
		}
	}
}

// next is a renewal that is carried out: each handle is another one then.
func next(handles []algorithm.Handle) ([]algorithm.Handle, error) {
	for i := range handles {
		handles[i].A++
	}
	return handles, nil
}

// slotTTL is for how long slots and units are held.
const slotTTL = 12 * time.Second

// reserved returns a Hold of one slot and one unit, which k has.
func reserved(k Keeper, now time.Time) *Hold {
	set := limits.New("x", []limits.Limit{
		{Kind: algorithm.InFlight, Numbers: algorithm.Numbers{Burst: 9}, Name: "slots", Hold: slotTTL},
		{Kind: algorithm.FixedWindow, Numbers: algorithm.Numbers{Count: 9, Period: 1e6}, Name: "units", Hold: slotTTL},
	})
	h := New(set, "k", 1, true, now)
	copy(h.Handles(), []algorithm.Handle{{A: 1, B: 1}, {A: 1, B: 1}})
	h.Keeper = k
	return h
}

// counted are Events that count slots.
func counted(slots *atomic.Int64) Events {
	return Events{
		Slots: func(_ *Hold, n int64) { slots.Add(n) },
		Freed: func(*Hold) {},
		Lost:  func(*Hold) {},
	}
}

// TestDropWhileEnding drops a Hold whose End waits for a renewal: it ends all the same, with the
// handles of that renewal, and its slots are given back once.
func TestDropWhileEnding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate, slots := make(chan struct{}), atomic.Int64{}
		k := &fakeKeeper{renew: func(handles []algorithm.Handle) ([]algorithm.Handle, error) {
			<-gate
			return next(handles)
		}}
		w := NewRenewer(counted(&slots), time.Now, false)
		h := reserved(k, time.Now())
		w.Add(h)
		w.Keep(h)
		time.Sleep(slotTTL / 3)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if err := w.End(ctx, h, 0); err == nil || k.renewals.Load() != 1 || len(k.ended) != 0 {
			t.Errorf("%v, %d renewals; ended %v", err, k.renewals.Load(), k.ended)
		}
		if w.Drop(h) || slots.Load() != 0 {
			t.Errorf("it was dropped; %d slots", slots.Load())
		}
		close(gate)
		synctest.Wait()
		if len(k.ended) != 1 || k.ended[0].Op != algorithm.OpSettle || k.ended[0].Handles[0].A != 2 || k.ended[0].Handles[1].A != 2 {
			t.Errorf("ended %+v", k.ended)
		}
	})
}

// TestRenewedAgain has a renewal that is not carried out, as by a server that is only read: the
// next one is, before what is held expires.
func TestRenewedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused, slots := false, atomic.Int64{}
		k := &fakeKeeper{renew: func(handles []algorithm.Handle) ([]algorithm.Handle, error) {
			if !refused {
				refused = true
				return nil, nil
			}
			return next(handles)
		}}
		w := NewRenewer(counted(&slots), time.Now, false)
		h := reserved(k, time.Now())
		w.Add(h)
		w.Keep(h)
		time.Sleep(slotTTL - time.Second)
		if n := k.renewals.Load(); n < 2 || slots.Load() != 1 {
			t.Errorf("%d renewals, %d slots", n, slots.Load())
		}
		_ = w.End(t.Context(), h, 0)
		if e := k.ended[0]; e.Op != algorithm.OpSettle || e.Handles[0].A < 2 || e.Handles[1].A < 2 {
			t.Errorf("ended %+v", e)
		}
	})
}

// TestRenewedOnce has a test and the timer renew at the same time.
func TestRenewedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate, slots := make(chan struct{}), atomic.Int64{}
		k := &fakeKeeper{renew: func(handles []algorithm.Handle) ([]algorithm.Handle, error) {
			<-gate
			return next(handles)
		}}
		w := NewRenewer(counted(&slots), time.Now, false)
		h := reserved(k, time.Now())
		w.Add(h)
		time.Sleep(slotTTL / 3) // the timer's renewal is in flight
		w.Look()
		w.All()
		if n := k.renewals.Load(); n != 1 {
			t.Errorf("%d renewals, want 1", n)
		}
		close(gate)
		synctest.Wait()
		w.All()
		if n := k.renewals.Load(); n != 2 {
			t.Errorf("%d renewals after that, want 2", n)
		}
		_ = w.End(t.Context(), h, 0)
		time.Sleep(time.Minute) // the timer finds nothing to renew
	})
}

// TestLookTogether goes by a clock of its own: who looks while another renews waits for that, for
// it would decide by what is about to be renewed. An observer that is told of a loss may look.
func TestLookTogether(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	var slots atomic.Int64
	begun, gate, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
	k := &fakeKeeper{renew: func(handles []algorithm.Handle) ([]algorithm.Handle, error) {
		close(begun)
		<-gate
		handles[0] = algorithm.Handle{} // the slot is lost
		return handles, nil
	}}
	events := counted(&slots)
	w := NewRenewer(events, func() time.Time { return time.Unix(now.Load(), 0) }, true)
	w.events.Lost = func(*Hold) {
		w.Look()
		close(told)
	}
	w.Add(reserved(k, time.Unix(0, 0)))
	now.Store(3600)
	go w.Look()
	<-begun
	second := make(chan struct{})
	go func() {
		w.Look()
		close(second)
	}()
	select {
	case <-second:
		t.Error("the second has looked before the first has renewed")
	case <-time.After(50 * time.Millisecond):
	}
	close(gate)
	for name, done := range map[string]chan struct{}{"the second": second, "the observer": told} {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Errorf("%s waits for ever", name)
		}
	}
}
