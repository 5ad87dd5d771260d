package hold

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// A fakeKeeper makes renewals wait for a gate, and lets the test choose their results.
type fakeKeeper struct {
	gate     chan struct{}
	renew    func(handles []algorithm.Handle) []algorithm.Handle
	fails    map[algorithm.Op]error // the errors of renewals and endings
	renewals atomic.Int32
	ended    []Ending
}

func (k *fakeKeeper) End(_ context.Context, e Ending) error {
	k.ended = append(k.ended, e)
	return k.fails[e.Op]
}

func (k *fakeKeeper) Renew(all []*Renewal) {
	for _, r := range all {
		if handles := r.Begin(); handles != nil {
			k.renewals.Add(1)
			<-k.gate
			r.End(k.renew(handles), k.fails[algorithm.OpRenew])
		}
	}
}

// slotTTL is how long slots and units are held.
const slotTTL = 12 * time.Second

// keep returns a Hold with one slot and one unit, and a Renewer that renews both. Each renewal changes the
// handles of both. slots counts the slots that the process holds.
func (k *fakeKeeper) keep(now func() time.Time, driven bool) (w *Renewer, h *Hold, slots *atomic.Int64) {
	w, h, slots = k.reserve(now, driven)
	w.Keep(h)
	return w, h, slots
}

// reserve is like keep, but the Renewer renews only the slot.
func (k *fakeKeeper) reserve(now func() time.Time, driven bool) (w *Renewer, h *Hold, slots *atomic.Int64) {
	slots = new(atomic.Int64)
	w = NewRenewer(Events{
		Slots: func(_ *Hold, n int64) { slots.Add(n) },
		Freed: func(*Hold) {},
		Lost:  func(*Hold) {},

		Canceled: func(*Hold) {},
	}, now, driven)
	h = New(limits.New("x", []limits.Config{
		{Kind: algorithm.InFlight, Numbers: algorithm.Numbers{Burst: 9}, HoldDuration: slotTTL},
		{Kind: algorithm.FixedWindow, Numbers: algorithm.Numbers{Count: 9, Period: 1e6}, HoldDuration: slotTTL},
	}), "k", 1, true, now())
	copy(h.Handles(), []algorithm.Handle{{A: 1, B: 1}, {A: 1, B: 1}})
	h.Keeper = k
	k.gate = make(chan struct{})
	k.renew = func([]algorithm.Handle) []algorithm.Handle { return []algorithm.Handle{{A: 2, B: 2}, {A: 2, B: 2}} }
	w.Add(h)
	return w, h, slots
}

// wantSettled checks that the slot and the unit were settled once, with the handles that the renewal has given
// them.
func (k *fakeKeeper) wantSettled(t *testing.T) {
	t.Helper()
	if len(k.ended) != 1 || k.ended[0].Op != algorithm.OpSettle || k.ended[0].Handles[0].A != 2 || k.ended[0].Handles[1].A != 2 {
		t.Errorf("ended %+v", k.ended)
	}
}

// TestDropWhileEnding drops a Hold while its End waits for a renewal. The Hold is settled nevertheless, and its
// slot is given back only once.
func TestDropWhileEnding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKeeper{}
		w, h, slots := k.keep(time.Now, false)
		time.Sleep(slotTTL / 3)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if err := w.End(ctx, h, 0, nil); err == nil || w.Drop(h) || slots.Load() != 0 {
			t.Errorf("%v, or it was dropped; %d slots", err, slots.Load())
		}
		close(k.gate)
		synctest.Wait()
		k.wantSettled(t)
	})
}

// A fakeLease is a lease that is never closed.
type fakeLease struct{ settled int }

func (*fakeLease) Give(int64) bool      { return true }
func (*fakeLease) Lasts() time.Duration { return slotTTL }
func (l *fakeLease) Settle(int64, int64) bool {
	l.settled++
	return true
}

// TestSettledWhileMoved settles units of a lease while a renewal gives them a hold of their own. They are
// settled in that hold, and not in the lease as well.
func TestSettledWhileMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, lease := &fakeKeeper{}, &fakeLease{}
		w, h, _ := k.keep(time.Now, false)
		h.mu.Lock()
		h.lease = lease
		h.mu.Unlock()
		time.Sleep(slotTTL / 3)
		go func() { _ = w.End(t.Context(), h, 1, nil) }()
		synctest.Wait()
		close(k.gate)
		synctest.Wait()
		if lease.settled != 0 {
			t.Errorf("settled in the lease %d times", lease.settled)
		}
		k.wantSettled(t)
	})
}

// TestRenewedAgain makes a renewal fail. The Renewer tries again before the slot and the unit expire.
func TestRenewedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKeeper{}
		w, h, _ := k.keep(time.Now, false)
		carriedOut := k.renew
		k.renew = func([]algorithm.Handle) []algorithm.Handle {
			k.renew = carriedOut
			return nil
		}
		close(k.gate)
		time.Sleep(slotTTL - time.Second)
		_ = w.End(t.Context(), h, 0, nil)
		k.wantSettled(t)
	})
}

// TestKeptWhileRenewed calls Keep while a renewal of the slot alone is in flight, and loses the reply to it. The
// unit is settled all the same, because its handle was not part of the renewal.
func TestKeptWhileRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKeeper{fails: map[algorithm.Op]error{algorithm.OpRenew: errors.New("no reply")}}
		w, h, _ := k.reserve(time.Now, false)
		time.Sleep(slotTTL / 3)
		w.Keep(h)
		close(k.gate)
		synctest.Wait()
		_ = w.End(t.Context(), h, 0, nil)
		if k.renewals.Load() != 1 || k.ended[0].Op != algorithm.OpSettle || k.ended[0].Handles[1].A != 1 {
			t.Errorf("ended %+v after %d renewals", k.ended, k.renewals.Load())
		}
	})
}

// TestHandlesLost loses the reply to a renewal of the slot and the unit. Only the slot and the cost beyond the
// unit are ended then, and the error of either is returned.
func TestHandlesLost(t *testing.T) {
	t.Parallel()
	for _, fails := range []algorithm.Op{algorithm.OpRelease, algorithm.OpSettle} {
		synctest.Test(t, func(t *testing.T) {
			down := errors.New("down")
			k := &fakeKeeper{fails: map[algorithm.Op]error{algorithm.OpRenew: errors.New("no reply"), fails: down}}
			w, h, _ := k.keep(time.Now, false)
			close(k.gate)
			w.All()
			err := w.End(t.Context(), h, 3, nil)
			if len(k.ended) != 2 || k.ended[0].Op != algorithm.OpRelease || k.ended[1].N != 0 || k.ended[1].Actual != 2 || !errors.Is(err, down) {
				t.Errorf("%v; ended %+v", err, k.ended)
			}
		})
	}
}

// TestPassed ends a Hold some time after its renewal. Ending.Passed counts from the reply to the renewal, by the
// clock that shows the longer time. The slot lasts from when the renewal was sent.
func TestPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKeeper{}
		w, h, _ := k.keep(time.Now, false)
		time.Sleep(slotTTL / 3) // the renewal is sent during this time
		time.Sleep(time.Second)
		close(k.gate)
		synctest.Wait()
		if sent := time.Since(h.sentAt); sent < time.Second {
			t.Errorf("the slot lasts from %v ago, want from when the renewal was sent", sent)
		}
		time.Sleep(time.Second / 2)
		_ = w.End(t.Context(), h, 0, nil)
		if k.wantSettled(t); !t.Failed() && k.ended[0].Passed != time.Second/2 {
			t.Errorf("%v have passed, want 500ms", k.ended[0].Passed)
		}
	})
	synctest.Test(t, func(t *testing.T) { // the slot is renewed, and the unit is not
		k := &fakeKeeper{}
		w, h, _ := k.reserve(time.Now, false)
		close(k.gate)
		time.Sleep(slotTTL + time.Second)
		_ = w.End(t.Context(), h, 0, nil)
		if k.renewals.Load() == 0 || k.ended[0].Passed != slotTTL+time.Second || k.ended[0].Lasts != 0 {
			t.Errorf("%v of %v have passed after %d renewals", k.ended[0].Passed, k.ended[0].Lasts, k.renewals.Load())
		}
	})
	synctest.Test(t, func(t *testing.T) { // the unit comes from a lease, which was granted a second before
		for renewed, want := range map[bool]Ending{false: {Passed: 2 * time.Second, Lasts: slotTTL}, true: {Passed: time.Second}} {
			k := &fakeKeeper{gate: make(chan struct{}), renew: func([]algorithm.Handle) []algorithm.Handle { return []algorithm.Handle{{A: 2, B: 2}} }}
			w := NewRenewer(Events{}, time.Now, false)
			h := New(limits.New("x", []limits.Config{
				{Kind: algorithm.FixedWindow, Numbers: algorithm.Numbers{Count: 9, Period: 1e6}, HoldDuration: time.Hour},
			}), "k", 1, true, time.Now())
			h.Keeper = k
			close(k.gate)
			h.FromLease(&fakeLease{}, []algorithm.Handle{{A: 1, B: 1}}, time.Now().Add(-3*time.Second/2), time.Now().Add(-time.Second))
			if w.Add(h); renewed {
				w.All()
			}
			time.Sleep(time.Second)
			_ = w.End(t.Context(), h, 2, nil) // more than was reserved, so it is not settled in the lease
			if e := k.ended[0]; e.Passed != want.Passed || e.Lasts != want.Lasts {
				t.Errorf("renewed: %v; %v of %v have passed, want %v of %v", renewed, e.Passed, e.Lasts, want.Passed, want.Lasts)
			}
		}
	})
	begun := time.Now()
	suspended := begun.Round(0).Add(time.Hour) // by the wall clock
	if got := max(passed(begun, suspended), passed(suspended, begun.Add(2*time.Hour))); got != time.Hour {
		t.Errorf("%v have passed, want 1h", got)
	}
}

// TestRenewedOnce calls All and RenewDue while the renewal that the timer began is in flight. The Hold is not
// renewed again.
func TestRenewedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKeeper{}
		w, _, _ := k.keep(time.Now, false)
		defer w.Close()
		time.Sleep(slotTTL / 3)
		go w.All()
		go w.RenewDue()
		synctest.Wait()
		if n := k.renewals.Load(); n != 1 {
			t.Errorf("%d renewals, want 1", n)
		}
		close(k.gate)
	})
}

// TestLeastTimeLeftFirst checks that the Hold that expires first is renewed first, because it takes long until a
// distant Redis has carried out many renewals. Units may expire before slots that were taken earlier.
func TestLeastTimeLeftFirst(t *testing.T) {
	t.Parallel()
	for name, renew := range map[string]func(*Renewer){"RenewDue": (*Renewer).RenewDue, "All": (*Renewer).All} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, now := &fakeKeeper{}, time.Unix(0, 0)
			w, first, _ := k.keep(func() time.Time { return now }, true)
			close(k.gate)
			var order []int64
			k.renew = func(handles []algorithm.Handle) []algorithm.Handle {
				order = append(order, handles[0].A)
				return handles
			}
			soon := limits.New("x", []limits.Config{
				{Kind: algorithm.InFlight, Numbers: algorithm.Numbers{Burst: 9}, HoldDuration: slotTTL},
				{Kind: algorithm.FixedWindow, Numbers: algorithm.Numbers{Count: 9, Period: 1e6}, HoldDuration: slotTTL / 5},
			})
			for i := range int64(20) {
				now = now.Add(slotTTL / 24)
				of := first.Set
				if i >= 18 {
					of = soon
				}
				h := New(of, "k", 1, true, now)
				copy(h.Handles(), []algorithm.Handle{{A: 2 + i, B: 1}, {A: 1, B: 1}})
				h.Keeper = k
				if w.Add(h); i >= 18 {
					w.Keep(h)
				}
			}
			now = now.Add(slotTTL)
			want := []int64{20, 1, 21}
			for i := range int64(18) {
				want = append(want, 2+i)
			}
			if renew(w); !slices.Equal(order, want) {
				t.Errorf("renewed %v, want %v", order, want)
			}
		})
	}
}

// TestRenewDueTogether calls RenewDue while another goroutine renews, with a Renewer for which only callers renew.
// The second RenewDue waits for the renewals of the first, because its caller's next step depends on them. An
// observer that is notified of a loss may call RenewDue, too.
func TestRenewDueTogether(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	k := &fakeKeeper{}
	w, _, _ := k.keep(func() time.Time { return time.Unix(now.Load(), 0) }, true)
	k.renew = func([]algorithm.Handle) []algorithm.Handle { return make([]algorithm.Handle, 2) } // the slots are lost
	returned := make(chan string, 3)
	renewDue := func(who string) {
		w.RenewDue()
		returned <- who
	}
	w.events.Lost = func(*Hold) { renewDue("the observer") }
	now.Store(3600)
	go renewDue("the first")
	for k.renewals.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	go renewDue("the second")
	select {
	case who := <-returned:
		t.Errorf("RenewDue has returned to %s before the renewal has ended", who)
	case <-time.After(50 * time.Millisecond):
	}
	close(k.gate)
	for range 3 {
		select {
		case <-returned:
		case <-time.After(10 * time.Second):
			t.Fatal("a RenewDue never returns")
		}
	}
}

// TestNothingToRenew calls Keep for a place in a queue. The place is charged and does not expire, so it is not
// renewed.
func TestNothingToRenew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKeeper{gate: make(chan struct{})}
		w := NewRenewer(Events{}, time.Now, false)
		h := New(limits.New("x", []limits.Config{
			{Kind: algorithm.LeakyBucket, Numbers: algorithm.Numbers{Count: 9, Period: 1e6, Burst: 9}, HoldDuration: slotTTL},
		}), "k", 1, true, time.Now())
		h.Keeper = k
		w.Keep(h)
		time.Sleep(2 * slotTTL)
		if n := k.renewals.Load(); n != 0 {
			t.Errorf("%d renewals", n)
		}
		w.Close()
		close(k.gate)
	})
}
