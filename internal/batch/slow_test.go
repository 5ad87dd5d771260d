package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// If round trips are slow, more batches are in flight than usual, but each additional one is full: a
// batch that is not full waits until no more than the usual number is in flight. If round trips are not
// slow, no additional batches are in flight.
func TestLongRoundTrips(t *testing.T) {
	t.Parallel()
	for roundTrip, want := range map[time.Duration]int{time.Millisecond: maxInFlight, 200 * time.Millisecond: maxInFlightSlow} {
		t.Run(fmt.Sprint(roundTrip), func(t *testing.T) {
			t.Parallel()
			withServer(t, 2, func(t *testing.T, p *server) {
				p.fill()
				p.roundTrip = roundTrip
				for i := range 4 * maxInFlightSlow {
					p.call(t.Context(), fmt.Sprint(i%10))
				}
				if p.inFlight != want {
					t.Errorf("%d in flight, want %d", p.inFlight, want)
				}
				for _, b := range p.batches {
					if len(b) != 2 {
						t.Errorf("a batch of %d beyond the usual number in flight", len(b))
					}
				}
				p.call(t.Context(), "odd")
				released := 0
				for i := 0; i < len(p.batches) || released < maxInFlight; {
					if i < len(p.batches) {
						p.end(i, nil)
						i++
						if last := p.batches[len(p.batches)-1]; last[0] == "odd" && p.inFlight > maxInFlight {
							t.Errorf("a batch that is not full went beside %d others", p.inFlight-1)
						}
						continue
					}
					p.start()
					released++
				}
				p.idle(0)
			})
		})
	}
}

// If round trips are long, a waiting batch starts after a fraction of a round trip: its callers may not
// have the time to wait for another batch to return.
func TestBeginEvenly(t *testing.T) {
	t.Parallel()
	const roundTrip = 2 * far
	withServer(t, 100, func(t *testing.T, p *server) {
		p.fill()
		p.roundTrip = roundTrip
		p.call(t.Context(), "a")
		p.call(t.Context(), "b")
		time.Sleep(roundTrip / maxInFlightSlow)
		synctest.Wait()
		p.sent("ab")
		p.call(t.Context(), "c")
		time.Sleep(roundTrip/maxInFlightSlow - 1)
		synctest.Wait()
		p.sent("ab")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		p.sent("ab", "c")
		for range 100 {
			p.call(t.Context(), "")
			time.Sleep(roundTrip / maxInFlightSlow)
			synctest.Wait()
		}
		if p.inFlight != maxInFlightSlow {
			t.Errorf("%d in flight, want %d", p.inFlight, maxInFlightSlow)
		}
		for range maxInFlight {
			p.start()
		}
		for i := 0; i < len(p.batches); i++ { //nolint:intrange // each that ends may begin another
			p.end(i, nil)
		}
		p.idle(0)
	})
}

// If round trips are short and there are many callers, half as many batches are in flight as otherwise, and
// they are larger. This also holds after round trips have been long for a while.
func TestShortRoundTrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var takes, sent atomic.Int64
		send := func() {
			time.Sleep(time.Duration(takes.Load() * (100 + sent.Add(1)%7) / 100)) // different durations, so that hardly two end at the same time
		}
		b := New(Bound{maxInFlight, maxBatches, 100, 100, far}, func(int) int64 { return 1 }, func(context.Context, []int) error {
			send()
			return nil
		}, nil, nil)
		ctx, stop := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		defer callers.Wait()
		defer stop()
		takes.Store(int64(short / 2))
		for range 16 {
			callers.Go(func() {
				for ctx.Err() == nil {
					if place, way := b.Enter(ctx, 1); way == Batched {
						_, _ = place.Wait(t.Context(), nil)
					} else {
						send()
						place.Release()
					}
				}
			})
		}
		for i, phase := range []struct {
			takes time.Duration
			want  int64
		}{{short / 2, maxBatches}, {4 * short, maxInFlight}, {short / 2, maxBatches}} {
			const roundTrips = 200
			takes.Store(int64(phase.takes))
			time.Sleep(roundTrips * phase.takes)
			before := sent.Load()
			time.Sleep(roundTrips * phase.takes)
			if got, want := sent.Load()-before, roundTrips*phase.want; got < want*9/10 || got > want*11/10 {
				t.Errorf("phase %d, round trips of %v: %d sent in %d of them, want about %d", i, phase.takes, got, roundTrips, want)
			}
		}
	})
}

// If round trips are short and the calls in flight hang, a waiting batch soon starts anyway, until the
// usual number is in flight. When a batch returns, the next starts soon.
func TestHang(t *testing.T) {
	t.Parallel()
	withServer(t, 10, func(t *testing.T, p *server) {
		p.fill()
		p.roundTrip = short / 2
		p.call(t.Context(), "a")
		for range 3 {
			p.start()
		}
		p.sent("a") // while a call that was sent alone is in flight
		p.call(t.Context(), "b")
		time.Sleep(minStallDelay - stalled/2)
		p.end(0, nil)
		p.sent("a", "b")
		p.call(t.Context(), "c")
		time.Sleep(stalled)
		synctest.Wait()
		p.sent("a", "b") // the last batch has just begun
		time.Sleep(minStallDelay)
		synctest.Wait()
		p.sent("a", "b", "c")
		p.call(t.Context(), "d")
		time.Sleep(minStallDelay)
		synctest.Wait()
		p.sent("a", "b", "c", "d")
		p.call(t.Context(), "e")
		time.Sleep(time.Minute)
		synctest.Wait()
		p.sent("a", "b", "c", "d")
		p.end(1, nil)
		time.Sleep(minStallDelay)
		synctest.Wait()
		p.sent("a", "b", "c", "d", "e")
		for _, i := range []int{2, 3, 4} {
			p.end(i, nil)
		}
		p.idle(1)
	})
}

// No more than maxWaiting calls wait.
func TestFull(t *testing.T) {
	t.Parallel()
	b := New(Bound{maxInFlight, maxBatches, 1000, 1e9, far}, func(int) int64 { return 1 }, func(context.Context, []int) error { return nil }, nil, nil)
	var batched, full int
	for range maxInFlight + maxWaiting + 5000 {
		switch _, way := b.Enter(t.Context(), 1); way {
		case Batched:
			batched++
		case Full:
			full++
		case Alone:
		}
	}
	if batched < maxWaiting || batched >= maxWaiting+1000 || full == 0 {
		t.Errorf("%d wait and %d may not, want about %d to wait", batched, full, maxWaiting)
	}
}

// If a caller stops waiting before its batch starts, its call is not sent. If it stops after that, the
// outcome of its call is abandoned.
func TestOver(t *testing.T) {
	t.Parallel()
	withServer(t, 10, func(t *testing.T, p *server) {
		p.fill()
		leave := func(key string) (Abandoned, error) {
			var answer string
			place, _ := p.Enter(t.Context(), call{key, &answer, new(error)})
			if key == "sent" {
				p.start()
			}
			over := make(chan struct{})
			close(over)
			return place.Wait(t.Context(), over)
		}
		if left, err := leave("unsent"); !errors.Is(err, ErrTimeout) || !left.Started.IsZero() {
			t.Errorf("before it is sent: %v, started %v", err, left.Started)
		}
		if n := p.leaving.Load(); n != 0 {
			t.Errorf("before it is sent: %d callers have left a call in flight, want 0", n)
		}
		patient := p.call(t.Context(), "patient")
		if left, err := leave("sent"); !errors.Is(err, ErrTimeout) || left.Started.IsZero() {
			t.Errorf("after it: %v, started %v", err, left.Started)
		}
		if n := p.leaving.Load(); n != 1 {
			t.Errorf("after it: %d callers have left a call in flight, want 1", n)
		}
		p.sent("patientsent")
		p.end(0, nil)
		if patient.err != nil || patient.answer != "patient" {
			t.Errorf("the other: %v", patient.err)
		}
		if want := []string{"sent <nil>"}; !slices.Equal(p.behind, want) {
			t.Errorf("left behind: %q, want %q", p.behind, want)
		}
		if n := p.leaving.Load(); n != 0 {
			t.Errorf("when its batch has ended: %d callers have left a call in flight, want 0", n)
		}
		p.idle(maxInFlight - 1)
	})
}
