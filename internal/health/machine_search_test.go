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

// A world is a machine together with a clock, its probes and its listeners.
type world struct {
	machine   machine
	now       time.Time
	probes    []flight  // the probes in flight
	announced []action  // so far
	logged    bool      // the present outage has been logged
	loggedAt  time.Time // when a line was last logged that says that the server is down
	longAt    time.Time // the same, for the latest outage that has ended, was logged and was no blip
}

// A flight is a probe in flight.
type flight struct {
	began   time.Time
	patient bool
	lost    bool // it will not be answered
}

const (
	// recoverStep is the precision with which the time of a recovery is measured.
	recoverStep = 5 * time.Millisecond
	// testTimeout is how long a probe takes that is not answered, unless it is patient.
	testTimeout = 500 * time.Millisecond
)

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
	w.probes, w.announced = slices.Clone(w.probes), slices.Clone(w.announced)
	return w
}

// settle does what the machine says, until the machine says to wait or to stop.
func (w *world) settle() error {
	for range 20 {
		do, pause := w.machine.next(w.now)
		switch do {
		case probe, probePatiently:
			w.probes = append(w.probes, flight{began: w.now, patient: do == probePatiently})
			if len(w.probes) > maxProbes {
				return errors.New("too many probes")
			}
		case wait:
			if pause < 0 || pause > idlePause {
				return fmt.Errorf("the machine waits for %v", pause)
			}
			return w.holds()
		case stop:
			return w.holds()
		case announceDown, announceStillDown, announceUp:
			if err := w.announce(do); err != nil {
				return err
			}
		}
	}
	return errors.New("the machine never waits")
}

func (w *world) announce(do action) error {
	before := stop
	if len(w.announced) > 0 {
		before = w.announced[len(w.announced)-1]
	}
	if isDown := before != stop && before != announceUp; isDown == (do == announceDown) {
		return fmt.Errorf("action %d is announced after %d", do, before)
	}
	w.announced = append(w.announced, do)
	switch {
	case do == announceDown && w.machine.logged, do == announceStillDown:
		before := w.loggedAt
		if do == announceStillDown && !w.logged { // a blip may have had the last line
			before = w.longAt
		}
		if !before.IsZero() && w.now.Sub(before) < logPause {
			return errors.New("two lines are logged in a minute")
		}
		w.loggedAt, w.logged = w.now, true
	case do == announceUp:
		if w.machine.logged && w.now.Sub(w.machine.wentDown) >= blip {
			w.longAt = w.loggedAt
		}
		if w.machine.state == Up {
			return errors.New("requests are sent before the listeners know that the server answers")
		}
		w.logged = false
		w.machine.announcedUp(w.now)
	}
	return nil
}

// holds checks the rules that must hold whenever the machine waits.
func (w *world) holds() error {
	isDown := len(w.announced) > 0 && w.announced[len(w.announced)-1] != announceUp
	switch {
	case isDown != (w.machine.state == Down):
		return fmt.Errorf("in state %d these were announced: %v", w.machine.state, w.announced)
	case w.machine.state == Recovered:
		return errors.New("the server answers, and nothing is announced")
	case w.machine.state == Doubted && w.now.Sub(w.machine.since) >= maxDoubt:
		return errors.New("the server is doubted for ever")
	}
	return nil
}

// An input is something that happens to a world.
type input struct {
	name string
	do   func(w *world)
}

var outcomeNames = map[Outcome]string{
	Inconclusive: "Inconclusive", Answered: "Answered", AnsweredLate: "AnsweredLate", Rejected: "Rejected", ConnectionLost: "ConnectionLost",
	TimedOut: "TimedOut", Unavailable: "Unavailable", Replaced: "Replaced", NotProbed: "NotProbed", maybeTimedOut: "maybeTimedOut",
}

// inputs returns everything that can happen in one step of the search.
func inputs() []input {
	cause := map[Outcome]error{
		AnsweredLate: io.ErrNoProgress, Rejected: errReply, ConnectionLost: io.EOF, maybeTimedOut: errReply, TimedOut: errReply,
		Unavailable: errDial,
	}
	all := []input{{"request", func(w *world) { w.machine.want(w.now) }}}
	for _, pause := range []time.Duration{time.Millisecond, minProbePause, idleAfter + 1, maxDoubt, logPause} {
		all = append(all, input{pause.String(), func(w *world) { w.now = w.now.Add(pause) }})
	}
	for o := range maybeTimedOut + 1 {
		name := outcomeNames[o]
		all = append(all,
			input{"call " + name, func(w *world) { w.machine.record(o, w.now, w.now, cause[o]) }},
			input{"old call " + name, func(w *world) { w.machine.record(o, time.Time{}, w.now, cause[o]) }},
			input{"probe " + name, func(w *world) {
				if len(w.probes) > 0 {
					p := w.probes[0]
					w.probes = w.probes[1:]
					w.machine.probeEnded(p.patient, o, p.began, w.now, cause[o])
				}
			}})
	}
	return all
}

// key returns the same text for two worlds if the same can happen in both from now on. Instants count
// from now. A new field of the machine must be part of the text, unless there is a reason to leave it
// out. These fields are left out: poolSize never changes, replaced only names an event, and wentDown is
// the same as since while the server is down.
func (w *world) key() string {
	mc := w.machine
	last := stop
	if len(w.announced) > 0 {
		last = w.announced[len(w.announced)-1]
	}
	var ages []string
	for _, p := range w.probes {
		ages = append(ages, fmt.Sprint(w.now.Sub(p.began), p.patient, p.began.Before(mc.since)))
	}
	ago := func(t time.Time) time.Duration { return min(w.now.Sub(t), 2*logPause) }
	return fmt.Sprint(mc.state, ago(mc.since), mc.untested, mc.broken, mc.probedHere, mc.patientProbe, mc.hurry, mc.cannotProbe,
		ago(mc.nextProbe), ago(mc.wantedAt), ago(mc.wokenAt),
		mc.announced, mc.logged, ago(mc.loggedAt), ago(mc.longLoggedAt), w.logged, mc.cause, last, ages)
}

// TestMachineSearched tries everything that can happen to a server in a few steps. Whatever has
// happened, a server that answers again must be up within a fifth of a second or, after a long outage,
// within a little more than 1% of the outage.
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
				if w.machine.state == Doubted { // requests wait during a doubt
					within += maxDoubt
				}
				if took, err := w.recovers(); err != nil || took > within+2*recoverStep {
					t.Fatalf("%s: up after %v, %v", path, took, err)
				}
				next = append(next, node{w, path})
			}
		}
		level = next
	}
	t.Logf("%d states", len(seen))
}

// TestFewProbes checks that maxProbes probes are in flight if no probe is answered, and that one of them
// is patient.
func TestFewProbes(t *testing.T) {
	t.Parallel()
	mc, patient, all := newMachine(), 0, 0
	mc.record(Unavailable, start, start, errDial)
	for now := start; now.Sub(start) < time.Minute; now = now.Add(minProbePause) {
		mc.want(now)
		for do, _ := mc.next(now); do != wait; do, _ = mc.next(now) {
			if do == probePatiently {
				patient++
			}
			if do == probe || do == probePatiently {
				all++
			}
		}
	}
	if patient != 1 || all != maxProbes {
		t.Errorf("%d probes, %d of them patient, want %d and 1", all, patient, maxProbes)
	}
}

// justified checks that an input that has changed the state was a reason to change it.
func justified(name string, before *machine, w *world) error {
	mc := &w.machine
	if mc.state == before.state {
		return nil
	}
	is := func(outcomes ...Outcome) bool {
		return slices.ContainsFunc(outcomes, func(o Outcome) bool { return strings.HasSuffix(name, " "+outcomeNames[o]) })
	}
	fresh := !strings.HasPrefix(name, "old")
	ok := false
	switch mc.state {
	case Up:
		ok = before.state == Doubted && (fresh && is(Answered, Rejected, Replaced) ||
			before.untested && is(Answered, AnsweredLate))
	case Doubted:
		ok = before.state == Up && is(ConnectionLost, maybeTimedOut)
	case Down:
		ok = before.state == Up && is(TimedOut, Unavailable) ||
			before.state == Doubted && fresh && (is(TimedOut, Unavailable, AnsweredLate, NotProbed) ||
				is(ConnectionLost) && before.broken == before.poolSize)
	case Recovered:
		ok = before.state == Down && fresh && is(Answered, Replaced)
	}
	if !ok {
		return fmt.Errorf("from state %d to %d", before.state, mc.state)
	}
	return nil
}

// recovers returns how long it takes until the server is up if requests need it, and if it answers every
// probe that begins from now on. Probes that are in flight get no answer.
func (w world) recovers() (time.Duration, error) {
	w = w.clone()
	for i := range w.probes {
		w.probes[i].lost = true
	}
	for began := w.now; w.now.Sub(began) < time.Minute; w.now = w.now.Add(recoverStep) {
		if w.machine.state != Up {
			w.machine.want(w.now)
		}
		w.probes = slices.DeleteFunc(w.probes, func(p flight) bool {
			switch timeout := map[bool]time.Duration{false: testTimeout, true: minConnectTime}[p.patient]; {
			case !p.lost:
				w.machine.probeEnded(p.patient, Answered, p.began, w.now, nil)
			case w.now.Sub(p.began) >= timeout:
				w.machine.probeEnded(p.patient, TimedOut, p.began, w.now, errReply)
			default:
				return false
			}
			return true
		})
		if err := w.settle(); err != nil {
			return 0, err
		}
		if w.machine.state == Up {
			return w.now.Sub(began), nil
		}
	}
	return 0, errors.New("the server is not up after a minute")
}
