package health

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// A world is a machine with what goes on around it, and what must hold of both.
type world struct {
	machine machine
	now     time.Time
	probes  []flight  // in flight
	said    []action  // what was announced
	line    bool      // the present outage has been logged
	linesAt time.Time // when a line was last logged that the server is down
	longAt  time.Time // the same, of the last outage that was no blip
}

// A flight is a probe in flight.
type flight struct {
	begun     time.Time
	far, lost bool
}

// recoverStep is how exactly the time is known in which a server is back.
const recoverStep = 5 * time.Millisecond

// testTimeout is how long a probe takes that is not answered, unless it is far.
const testTimeout = 500 * time.Millisecond

var (
	errReply = errors.New("an error of some kind")
	errDial  = errors.New("connection refused")
	start    = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
)

func newMachine() machine {
	return machine{untested: true, poolSize: 1}
}

func newWorld() world {
	return world{machine: newMachine(), now: start}
}

func (w world) clone() world {
	w.probes, w.said = slices.Clone(w.probes), slices.Clone(w.said)
	return w
}

// settle does what the machine says, until that is to wait.
func (w *world) settle() error {
	for range 20 {
		do, pause := w.machine.next(w.now)
		switch do {
		case probe, probePatiently:
			w.probes = append(w.probes, flight{begun: w.now, far: do == probePatiently})
			if len(w.probes) > maxProbes {
				return errors.New("too many probes")
			}
		case wait:
			if pause < 0 || pause > idlePause {
				return fmt.Errorf("it waits for %v", pause)
			}
			return w.holds()
		case stop:
			return w.holds()
		case announceDown, announceStillDown, announceUp:
			if err := w.say(do); err != nil {
				return err
			}
		}
	}
	return errors.New("it never waits")
}

func (w *world) say(do action) error {
	before := stop
	if len(w.said) > 0 {
		before = w.said[len(w.said)-1]
	}
	if isDown := before != stop && before != announceUp; isDown == (do == announceDown) {
		return fmt.Errorf("%d is said after %d", do, before)
	}
	w.said = append(w.said, do)
	switch {
	case do == announceDown && w.machine.logged, do == announceStillDown:
		before := w.linesAt
		if do == announceStillDown && !w.line { // a blip may have had the last line
			before = w.longAt
		}
		if !before.IsZero() && w.now.Sub(before) < logPause {
			return errors.New("two lines are logged in a minute")
		}
		w.linesAt, w.line = w.now, true
	case do == announceUp:
		if w.machine.logged && w.now.Sub(w.machine.wentDown) >= blip {
			w.longAt = w.linesAt
		}
		if w.machine.state == Up {
			return errors.New("decisions ask the server before it is said that it answers")
		}
		w.line = false
		w.machine.announcedUp(w.now)
	}
	return nil
}

// holds checks what holds whenever health waits.
func (w *world) holds() error {
	isDown := len(w.said) > 0 && w.said[len(w.said)-1] != announceUp
	switch {
	case isDown != (w.machine.state == Down):
		return fmt.Errorf("state %d, and last was said %v", w.machine.state, w.said)
	case w.machine.state == Recovered:
		return errors.New("it answers, and nothing is said")
	case w.machine.state == Doubted && w.now.Sub(w.machine.since) >= maxDoubt:
		return errors.New("it is doubted for ever")
	}
	return nil
}

// An input is something that happens to a world.
type input struct {
	name string
	do   func(w *world)
}

func inputs() []input {
	outcomes := []string{"answered", "slow", "replied", "unclear", "broken", "silent", "unable", "replaced", "notprobed", "unsure"}
	cause := map[Outcome]error{
		AnsweredLate: io.ErrNoProgress, Rejected: errReply, ConnectionLost: io.EOF, maybeTimedOut: errReply, TimedOut: errReply,
		Unavailable: errDial,
	}
	all := []input{{"wanted", func(w *world) { w.machine.want(w.now) }}}
	for _, pause := range []time.Duration{time.Millisecond, minProbePause, idleAfter + 1, maxDoubt, logPause} {
		all = append(all, input{pause.String(), func(w *world) { w.now = w.now.Add(pause) }})
	}
	for i, name := range outcomes {
		o := Outcome(i)
		all = append(all,
			input{"call " + name, func(w *world) { w.machine.record(o, w.now, w.now, cause[o]) }},
			input{"old call " + name, func(w *world) { w.machine.record(o, time.Time{}, w.now, cause[o]) }},
			input{"probe " + name, func(w *world) {
				if len(w.probes) > 0 {
					p := w.probes[0]
					w.probes = w.probes[1:]
					w.machine.probeEnded(p.far, o, p.begun, w.now, cause[o])
				}
			}})
	}
	return all
}

// key is what distinguishes worlds: instants count from now.
func (w *world) key() string {
	h := w.machine
	last := stop
	if len(w.said) > 0 {
		last = w.said[len(w.said)-1]
	}
	var ages []string
	for _, p := range w.probes {
		ages = append(ages, fmt.Sprint(w.now.Sub(p.begun), p.far, p.begun.Before(h.since)))
	}
	ago := func(t time.Time) time.Duration { return min(w.now.Sub(t), 2*logPause) }
	return fmt.Sprint(h.state, ago(h.since), h.untested, h.broken, h.probedBefore, h.patientProbe, h.hurry, h.cannotProbe,
		ago(h.nextProbe), ago(h.wantedAt), ago(h.wokenAt),
		h.announced, h.logged, ago(h.loggedAt), ago(h.longLoggedAt), w.line, h.cause, last, ages)
}

// All that can happen to a server in some steps is tried. Whatever happened, decisions are back at
// a server that answers within a fifth of a second, or a little more than a hundredth of a long
// outage.
func TestMachineSearched(t *testing.T) {
	t.Parallel()
	type node struct {
		world
		path string
	}
	steps := 5
	if testing.Short() {
		steps = 4
	}
	seen := map[string]bool{}
	level := []node{{newWorld(), ""}}
	for range steps {
		var next []node
		for _, n := range level {
			for _, in := range inputs() {
				w := n.clone()
				before := w.machine
				in.do(&w)
				path := n.path + "; " + in.name
				if err := justified(in.name, &before, &w); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				if err := w.settle(); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				k := w.key()
				if seen[k] {
					continue
				}
				seen[k] = true
				within := minProbePause + max(minProbePause, min(w.now.Sub(w.machine.wentDown)/100, maxProbePause))
				if w.machine.state == Doubted { // decisions wait meanwhile
					within += maxDoubt
				}
				if took, err := w.recovers(); err != nil || took > within+2*recoverStep {
					t.Fatalf("%s: back after %v, %v", path, took, err)
				}
				next = append(next, node{w, path})
			}
		}
		level = next
	}
	t.Logf("%d states", len(seen))
}

// While nothing answers a few probes are in flight, one of which has much time.
func TestFewProbes(t *testing.T) {
	t.Parallel()
	h, far, all := newMachine(), 0, 0
	h.record(Unavailable, start, start, errDial)
	for now := start; now.Sub(start) < time.Minute; now = now.Add(minProbePause) {
		h.want(now)
		for do, _ := h.next(now); do != wait; do, _ = h.next(now) {
			if do == probePatiently {
				far++
			}
			if do == probe || do == probePatiently {
				all++
			}
		}
	}
	if far != 1 || all != maxProbes {
		t.Errorf("%d probes, %d with much time, want %d and 1", all, far, maxProbes)
	}
}

// justified checks a change of state that an input made by itself.
func justified(name string, before *machine, w *world) error {
	h := &w.machine
	if h.state == before.state {
		return nil
	}
	is := func(outcome string) bool { return strings.HasSuffix(name, outcome) }
	fresh := !strings.HasPrefix(name, "old")
	ok := false
	switch h.state {
	case Up:
		ok = before.state == Doubted && (fresh && (is("answered") || is("replied") || is("replaced")) ||
			before.untested && (is("answered") || is("slow")))
	case Doubted:
		ok = before.state == Up && (is("broken") || is("unsure"))
	case Down:
		ok = before.state == Up && (is("silent") || is("unable")) ||
			before.state == Doubted && fresh && (is("silent") || is("unable") || is("slow") || is("notprobed") ||
				is("broken") && before.broken == before.poolSize)
	case Recovered:
		ok = before.state == Down && fresh && (is("answered") || is("replaced"))
	}
	if !ok {
		return fmt.Errorf("from state %d to %d", before.state, h.state)
	}
	return nil
}

// recovers returns how long it takes until the server is up, if that answers from now on and
// decisions want it. Probes in flight are answered no more.
func (w world) recovers() (time.Duration, error) {
	w = w.clone()
	for i := range w.probes {
		w.probes[i].lost = true
	}
	for begun := w.now; w.now.Sub(begun) < time.Minute; w.now = w.now.Add(recoverStep) {
		if w.machine.state != Up {
			w.machine.want(w.now)
		}
		w.probes = slices.DeleteFunc(w.probes, func(p flight) bool {
			switch lasts := map[bool]time.Duration{false: testTimeout, true: minConnectTime}[p.far]; {
			case !p.lost:
				w.machine.probeEnded(p.far, Answered, p.begun, w.now, nil)
			case w.now.Sub(p.begun) >= lasts:
				w.machine.probeEnded(p.far, TimedOut, p.begun, w.now, errReply)
			default:
				return false
			}
			return true
		})
		if err := w.settle(); err != nil {
			return 0, err
		}
		if w.machine.state == Up {
			return w.now.Sub(begun), nil
		}
	}
	return 0, errors.New("never")
}
