package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A runner is a contender that is ready to be measured in a cell.
type runner struct {
	*contender

	cell      cell
	limiter   limiter
	keys      []string
	processes []*process // with the callers; empty if this process has them
}

// keysOf returns the contender's keys in the cell.
func (r *runner) keysOf() []string {
	keys := make([]string, r.cell.keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%c%02d:%05d", r.cell.scenario[0], r.id, i)
	}
	return keys
}

// A track records what one caller measured in a slice.
type track struct {
	latencies *hdrhistogram.Histogram // of decisions, in nanoseconds
	decisions int
	allowed   int
	excused   int
	err       error
}

const slowest = int64(time.Minute)

func newTracks(n int) []*track {
	tracks := make([]*track, n)
	for i := range tracks {
		tracks[i] = &track{latencies: hdrhistogram.New(1, slowest, 2)} // accurate to one percent
	}
	return tracks
}

// A slice is what all callers of one contender measured during one turn.
type slice struct {
	track

	took time.Duration
	used usage
}

// measure runs the callers for d, after a warm-up of a quarter of d.
func (r *runner) measure(ctx context.Context, m *meter, tracks []*track, d time.Duration) (*slice, error) {
	if len(r.processes) > 0 {
		return r.measureProcesses(ctx, m, d)
	}
	attempts := make([]decide, r.cell.callers)
	for i := range attempts {
		attempts[i] = r.limiter()
	}
	tracks = tracks[:r.cell.callers]
	r.drive(ctx, attempts, tracks, d/4)
	runtime.GC() // so that a contender does not collect the garbage of the previous one
	for _, t := range tracks {
		t.latencies.Reset()
		*t = track{latencies: t.latencies}
	}
	before, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	r.drive(ctx, attempts, tracks, d)
	took := time.Since(start)
	after, err := m.readBack(ctx)
	if err != nil {
		return nil, err
	}
	s := merge(tracks)
	s.took, s.used = took, after.since(before)
	return s, r.check(s)
}

// merge combines the tracks of all callers.
func merge(tracks []*track) *slice {
	s := &slice{track: track{latencies: hdrhistogram.New(1, slowest, 2)}}
	for _, t := range tracks {
		s.latencies.Merge(t.latencies)
		s.decisions += t.decisions
		s.allowed += t.allowed
		s.excused += t.excused
		s.err = errors.Join(s.err, t.err)
	}
	return s
}

// drive runs all callers in a closed loop: each makes its next call as soon as the previous one returns.
func (r *runner) drive(ctx context.Context, attempts []decide, tracks []*track, d time.Duration) {
	var running sync.WaitGroup
	end := time.Now().Add(d)
	for i, t := range tracks {
		running.Go(func() { r.call(ctx, attempts[i], t, end) })
	}
	running.Wait()
}

func (r *runner) call(ctx context.Context, attempt decide, t *track, end time.Time) {
	choose := r.chooser()
	for now := time.Now(); ; {
		allowed, err := attempt(ctx, r.keys[choose()])
		then := time.Now()
		switch {
		case err == nil:
			t.decisions++
			_ = t.latencies.RecordValue(int64(then.Sub(now))) // never out of range, because no slice takes a minute
		case r.excuses != nil && r.excuses(err):
			t.excused++
		default:
			t.err = err
			return
		}
		if allowed && err == nil {
			t.allowed++
		}
		// Each caller calls at least once, even if the machine stalls for the whole slice.
		if now = then; !now.Before(end) || ctx.Err() != nil {
			return
		}
	}
}

// chooser returns a function that chooses one caller's next key.
func (r *runner) chooser() func() int {
	random, n := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), len(r.keys)
	if r.cell.zipf == 0 {
		return func() int { return random.IntN(n) }
	}
	z := rand.NewZipf(random, r.cell.zipf, 1, uint64(n-1))
	return func() int { return int(z.Uint64()) }
}

// check returns an error if the decisions of the slice are not those that its cell requires.
func (r *runner) check(s *slice) error {
	switch {
	case s.err != nil:
		return fmt.Errorf("%s: %s: %w", r.cell, r.name, s.err)
	case s.decisions == 0:
		return fmt.Errorf("%s: %s: no decision in %v", r.cell, r.name, s.took)
	case !r.limits:
		return nil
	case r.cell.scenario == admitted && s.allowed < s.decisions:
		return fmt.Errorf("%s: %s: of %d decisions only %d admitted", r.cell, r.name, s.decisions, s.allowed)
	case r.cell.scenario == denied && s.allowed > 1+s.decisions/100: // krishna-kudari's slowest GCRA admits one per second
		return fmt.Errorf("%s: %s: of %d decisions %d admitted, more than one in a hundred", r.cell, r.name, s.decisions, s.allowed)
	}
	return nil
}
