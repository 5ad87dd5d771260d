package batch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Where round trips are long, more batches are in flight, each of them full; where
// they are short, none are.
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
				released := 0
				for i := 0; i < len(p.batches) || released < maxInFlight; {
					if i < len(p.batches) {
						p.end(i, nil)
						i++
						continue
					}
					p.Release()
					released++
					synctest.Wait()
				}
				p.idle()
			})
		})
	}
}

// No more calls wait than may.
func TestFull(t *testing.T) {
	t.Parallel()
	b := New(Bound{maxInFlight, 1000, 1e9}, func(int) int64 { return 1 }, func(context.Context, []*Member[int]) error { return nil })
	var batched, full int
	for range maxInFlight + maxWaiting + 5000 {
		switch _, way := b.Acquire(t.Context(), 1); way {
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

// A caller in a hurry does not wait for its batch, and is not sent if that waits.
func TestHurry(t *testing.T) {
	t.Parallel()
	withServer(t, 10, func(t *testing.T, p *server) {
		p.fill()
		var answer string
		place, _ := p.Acquire(t.Context(), call{"hasty", &answer})
		patient := p.call(t.Context(), "patient")
		start := time.Now()
		if err := place.Wait(t.Context(), 20*time.Millisecond); !errors.Is(err, ErrHurry) || time.Since(start) != 20*time.Millisecond {
			t.Errorf("%v after %v, want ErrHurry after 20 ms", err, time.Since(start))
		}
		if d := place.InFlightFor(); d != 0 {
			t.Errorf("a batch that waits has been in flight for %v", d)
		}
		p.Release()
		synctest.Wait()
		p.sent("patient")
		time.Sleep(time.Second)
		if d := place.InFlightFor(); d != time.Second {
			t.Errorf("the batch has been in flight for %v, want a second", d)
		}
		p.end(0, nil)
		if !patient.ended || patient.err != nil {
			t.Errorf("the patient caller: ended %v, %v", patient.ended, patient.err)
		}
		for range maxInFlight - 1 {
			p.Release()
		}
		p.idle()
	})
}
