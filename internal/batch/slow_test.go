package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// Where round trips are long, more batches are in flight, each of them full: one that is
// not waits until there are as few as usual. Where they are short, none are.
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

// No more calls wait than may.
func TestFull(t *testing.T) {
	t.Parallel()
	b := New(Bound{maxInFlight, 1000, 1e9}, func(int) int64 { return 1 }, func(context.Context, []*Member[int]) error { return nil }, nil)
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

// A caller that has waited as long as it may is not sent if its batch waits; else its outcome is
// left behind.
func TestOver(t *testing.T) {
	t.Parallel()
	withServer(t, 10, func(t *testing.T, p *server) {
		p.fill()
		leave := func(key string) (Left, error) {
			var answer string
			place, _ := p.Enter(t.Context(), call{key, &answer})
			if key == "sent" {
				p.start()
			}
			over := make(chan struct{})
			close(over)
			return place.Wait(t.Context(), over)
		}
		if left, err := leave("unsent"); !errors.Is(err, ErrOver) || !left.Started.IsZero() {
			t.Errorf("before it is sent: %v, started %v", err, left.Started)
		}
		patient := p.call(t.Context(), "patient")
		if left, err := leave("sent"); !errors.Is(err, ErrOver) || left.Started.IsZero() {
			t.Errorf("after it: %v, started %v", err, left.Started)
		}
		p.sent("patientsent")
		p.end(0, nil)
		if patient.err != nil || patient.answer != "patient" {
			t.Errorf("the other: %v", patient.err)
		}
		if want := []string{"sent <nil>"}; !slices.Equal(p.behind, want) {
			t.Errorf("left behind: %q, want %q", p.behind, want)
		}
		p.idle(maxInFlight - 1)
	})
}
