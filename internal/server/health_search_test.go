package server

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// A world is a health with what goes on around it, and what must hold of both.
type world struct {
	health  health
	now     time.Duration
	probes  []flight      // in flight
	said    []action      // but wait
	linesAt time.Duration // when the last beginning was logged
	longAt  time.Duration // likewise, of those that took longer than a moment
}

// A flight is a probe in flight.
type flight struct {
	begun     time.Duration
	far, lost bool
}

// recoverStep is how exactly the time is known in which a server is back.
const recoverStep = 5 * time.Millisecond

// testTimeout is how long a probe takes that is not answered, unless it is far.
const testTimeout = 500 * time.Millisecond

func newWorld() world {
	return world{health: health{cold: true, pool: 1}, now: time.Second}
}

func (w world) clone() world {
	w.probes, w.said, w.health.causes = slices.Clone(w.probes), slices.Clone(w.said), slices.Clone(w.health.causes)
	return w
}

// settle does what health says, until that is to wait.
func (w *world) settle() error {
	for range 20 {
		do, pause := w.health.next(w.now)
		switch do {
		case probe, probePatiently:
			w.probes = append(w.probes, flight{begun: w.now, far: do == probePatiently})
			if len(w.probes) > maxProbes {
				return errors.New("too many probes")
			}
		case wait:
			if pause < 0 || pause > quietPause {
				return fmt.Errorf("it waits for %v", pause)
			}
			return w.holds()
		case rest:
			return w.holds()
		case sayDown, sayCause, sayStill, sayBack:
			if err := w.say(do); err != nil {
				return err
			}
		}
	}
	return errors.New("it never waits")
}

func (w *world) say(do action) error {
	before := rest
	if len(w.said) > 0 {
		before = w.said[len(w.said)-1]
	}
	if isDown := before != rest && before != sayBack; isDown == (do == sayDown) {
		return fmt.Errorf("%d is said after %d", do, before)
	}
	w.said = append(w.said, do)
	switch {
	case do == sayDown && w.health.logged, do == sayStill:
		before := w.linesAt
		if do == sayStill {
			before = w.longAt
		}
		if before > 0 && w.now-before < logPause {
			return errors.New("two outages are logged in a minute")
		}
		w.linesAt = w.now
	case do == sayBack:
		if w.health.logged && w.now-w.health.wentDown >= moment {
			w.longAt = w.linesAt
		}
		if w.health.state == up {
			return errors.New("decisions ask the server before it is said that it answers")
		}
		w.health.said(w.now)
	}
	return nil
}

// holds checks what holds whenever health waits.
func (w *world) holds() error {
	isDown := len(w.said) > 0 && w.said[len(w.said)-1] != sayBack
	switch {
	case isDown != (w.health.state == down):
		return fmt.Errorf("state %d, and last was said %v", w.health.state, w.said)
	case w.health.state == back:
		return errors.New("it answers, and nothing is said")
	case w.health.state == doubted && w.now-w.health.since >= doubtLasts:
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
	outcomes := []string{"answered", "slow", "replied", "unclear", "broken", "unsure", "silent", "unable"}
	cause := map[outcome]error{slow: io.ErrNoProgress, replied: errReply, broken: io.EOF, unsure: errReply, silent: errReply, unable: errDial}
	all := []input{{"wanted", func(w *world) { w.health.wanted(w.now) }}}
	for _, pause := range []time.Duration{time.Millisecond, probePause, quietAfter + 1, doubtLasts, logPause} {
		all = append(all, input{pause.String(), func(w *world) { w.now += pause }})
	}
	for i, name := range outcomes {
		o := outcome(i)
		all = append(all,
			input{"call " + name, func(w *world) { w.health.record(o, w.now, w.now, cause[o]) }},
			input{"old call " + name, func(w *world) { w.health.record(o, 0, w.now, cause[o]) }},
			input{"probe " + name, func(w *world) {
				if len(w.probes) > 0 {
					p := w.probes[0]
					w.probes = w.probes[1:]
					w.health.probed(p.far, o, p.begun, w.now, cause[o])
				}
			}})
	}
	return all
}

// key is what distinguishes worlds: instants count from now.
func (w *world) key() string {
	h := w.health
	last := rest
	if len(w.said) > 0 {
		last = w.said[len(w.said)-1]
	}
	var ages []string
	for _, p := range w.probes {
		ages = append(ages, fmt.Sprint(w.now-p.begun, p.far, p.begun < h.since))
	}
	ago := func(t time.Duration) time.Duration { return min(w.now-t, 2*logPause) }
	return fmt.Sprint(h.state, ago(h.since), h.cold, h.dead, h.probing, h.patient, h.hurried, ago(h.nextAt), ago(h.wantedAt), ago(h.wakeAt),
		h.told, h.logged, ago(h.loggedAt), ago(h.longLoggedAt), h.causes, likeness(h.cause), last, ages)
}

// All that can happen to a server in some steps is tried. Whatever happened, decisions are back at
// a server that answers within a fifth of a second, or a little more than a hundredth of a long
// outage.
func TestHealthSearched(t *testing.T) {
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
				before := w.health
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
				within := probePause + max(probePause, min((w.now-w.health.wentDown)/100, longestPause))
				if w.health.state == doubted { // decisions wait meanwhile
					within += doubtLasts
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
	h, far, all := health{cold: true, pool: 1}, 0, 0
	h.record(unable, time.Second, time.Second, errDial)
	for now := time.Second; now < time.Minute; now += probePause {
		h.wanted(now)
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
func justified(name string, before *health, w *world) error {
	h := &w.health
	if h.state == before.state {
		return nil
	}
	is := func(outcome string) bool { return strings.HasSuffix(name, outcome) }
	fresh := !strings.HasPrefix(name, "old")
	ok := false
	switch h.state {
	case up:
		ok = before.state == doubted && (fresh && (is("answered") || is("replied")) || before.cold && (is("answered") || is("slow")))
	case doubted:
		ok = before.state == up && (is("broken") || is("unsure"))
	case down:
		ok = before.state == up && (is("silent") || is("unable")) ||
			before.state == doubted && fresh && (is("silent") || is("unable") || is("slow") || is("broken") && before.dead == before.pool)
	case back:
		ok = before.state == down && fresh && is("answered")
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
	for begun := w.now; w.now-begun < time.Minute; w.now += recoverStep {
		if w.health.state != up {
			w.health.wanted(w.now)
		}
		w.probes = slices.DeleteFunc(w.probes, func(p flight) bool {
			switch lasts := map[bool]time.Duration{false: testTimeout, true: connectTime}[p.far]; {
			case !p.lost:
				w.health.probed(p.far, answered, p.begun, w.now, nil)
			case w.now-p.begun >= lasts:
				w.health.probed(p.far, silent, p.begun, w.now, errReply)
			default:
				return false
			}
			return true
		})
		if err := w.settle(); err != nil {
			return 0, err
		}
		if w.health.state == up {
			return w.now - begun, nil
		}
	}
	return 0, errors.New("never")
}
