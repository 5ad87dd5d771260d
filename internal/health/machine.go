package health

import "time"

const (
	// maxDoubt is how long a server can be doubted. After that it counts as down.
	maxDoubt = 3 * time.Second
	// While a server is down, the pause between probes is 1% of the outage so far, within these
	// bounds. At most maxProbes are in flight at a time.
	minProbePause = 100 * time.Millisecond
	maxProbePause = time.Second
	maxProbes     = 8
	// If no request has needed the server for idleAfter, it is probed only every idlePause. The next
	// request then triggers a probe at once and waits up to wakePause for its result.
	idleAfter = time.Second
	idlePause = 5 * time.Second
	wakePause = 100 * time.Millisecond
	// logPause is the least time between two lines in the log that say that the server is down.
	logPause = time.Minute
	// A blip is an outage shorter than this. The line of a blip does not delay the line of a longer
	// outage.
	blip = time.Second
)

// A machine holds the state of one server and the rules for changing it. It has no clock and does no
// I/O: callers report what happened and when, and next tells them what to do.
type machine struct {
	state State
	since time.Time // when it entered the state
	cause error     // the last error seen: why the server is not up

	untested bool // no call has ever been answered
	poolSize int
	broken   int // connections found broken since the server is in doubt

	probes       int  // in flight
	probedBefore bool // one of them was started in the current state
	patientProbe bool // one of them is allowed the time that a new connection can take
	hurry        bool // a connection broke: a probe gets no more time than a request, since requests wait for it
	cannotProbe  bool // there is nothing to probe with: no probe begins until a request needs the server
	replaced     bool // another server took over

	nextProbe time.Time
	wantedAt  time.Time // when a request last needed the server
	wokenAt   time.Time // when one needed it after a quiet period

	wentDown  time.Time
	announced bool // listeners have been notified that the server is down

	logged       bool      // the current outage has a line in the log
	loggedAt     time.Time // when a line was last logged that says that the server is down
	longLoggedAt time.Time // the same, of the last outage that has ended and that was no blip
}

// enter switches to another state and resets what was counted in the old one.
func (m *machine) enter(s State, now time.Time) {
	m.state, m.since, m.broken, m.nextProbe, m.probedBefore, m.cannotProbe = s, now, 0, now, false, false
	if s == Down {
		m.wentDown, m.wantedAt = now, now
	}
}

// record handles the outcome of a request or probe. A call that began before the current state was
// entered is ignored: it says how things were, not how they are.
func (m *machine) record(o Outcome, began, now time.Time, cause error) {
	first := m.untested && (o == Answered || o == AnsweredLate)
	m.untested = m.untested && !first
	switch {
	case first && m.state == Doubted:
		// The first call also opens the connection, so it may have been slow for that reason alone.
		m.enter(Up, now)
	case began.Before(m.since), o == Inconclusive:
	case m.state == Up && (o == ConnectionLost || o == maybeTimedOut):
		m.cause, m.hurry = cause, o == ConnectionLost
		m.enter(Doubted, now)
	case m.state == Up && (o == TimedOut || o == Unavailable):
		m.cause = cause
		m.enter(Down, now)
	case m.state == Doubted:
		m.recordDoubted(o, now, cause)
	case m.state == Down && (o == Answered || o == Replaced):
		m.replaced = o == Replaced
		m.enter(Recovered, now)
	case m.state == Down && cause != nil:
		m.cause = cause
	}
}

func (m *machine) recordDoubted(o Outcome, now time.Time, cause error) {
	if cause != nil {
		m.cause = cause
	}
	switch {
	case o == Answered, o == Rejected, o == Replaced:
		m.enter(Up, now)
	case o == ConnectionLost && m.broken < m.poolSize:
		// Every pooled connection may be broken. The one after the last of them is new.
		m.broken++
	case o == maybeTimedOut:
		m.hurry = false
	default:
		m.enter(Down, now)
	}
}

// want notes that a request needs the server. It returns how long that request should wait for the
// state to change; 0 means not at all.
func (m *machine) want(now time.Time) time.Duration {
	idle := now.Sub(m.wantedAt) > idleAfter
	m.wantedAt, m.cannotProbe = now, false
	switch m.state {
	case Up:
		return 0
	case Doubted:
		return m.since.Add(maxDoubt).Sub(now)
	case Recovered:
		return wakePause
	case Down:
		if idle {
			m.wokenAt, m.nextProbe = now, now
		}
	}
	return max(0, m.wokenAt.Add(wakePause).Sub(now))
}

// An action is what the supervisor should do next.
type action uint8

const (
	wait              action = iota // for an event, or for as long as next says
	probe                           // with the timeout of a request
	probePatiently                  // with the time that a new connection can take
	announceDown                    // to all listeners
	announceStillDown               // to the listener that logs: its last line is a minute old, or the start was not logged
	announceUp                      // to all listeners that were notified that it was down
	stop                            // supervising: the server is up, or there is nothing to probe with
)

// next returns what to do now. If that is to wait, it also returns for how long at most.
func (m *machine) next(now time.Time) (action, time.Duration) {
	if m.state == Doubted && now.Sub(m.since) >= maxDoubt {
		m.enter(Down, now)
	}
	if a := m.announcement(now); a != wait {
		return a, 0
	}
	switch {
	case m.state == Up, m.cannotProbe:
		return stop, 0
	case m.state == Recovered:
		return wait, 0
	case m.state == Doubted && (m.probedBefore || m.probes == maxProbes): // one probe at a time
		return wait, m.since.Add(maxDoubt).Sub(now)
	case m.probes == maxProbes:
		return wait, maxProbePause
	case now.Before(m.nextProbe):
		return wait, m.nextProbe.Sub(now)
	}
	return m.startProbe(now), 0
}

func (m *machine) startProbe(now time.Time) action {
	m.probes, m.probedBefore = m.probes+1, true
	switch {
	case m.state == Doubted:
		m.nextProbe = now
	case now.Sub(m.wantedAt) > idleAfter:
		m.nextProbe = now.Add(idlePause)
	default:
		m.nextProbe = now.Add(min(max(minProbePause, now.Sub(m.wentDown)/100), maxProbePause))
	}
	if m.state == Doubted && m.hurry || m.state == Down && m.patientProbe {
		return probe
	}
	m.patientProbe = true
	return probePatiently
}

// probeEnded handles the outcome of a probe that next asked for.
func (m *machine) probeEnded(patient bool, o Outcome, began, now time.Time, cause error) {
	m.probes--
	m.patientProbe = m.patientProbe && !patient
	m.probedBefore = m.probedBefore && began.Before(m.since)
	m.record(o, began, now, cause)
	m.cannotProbe = m.cannotProbe || o == NotProbed
}

// announcement returns what to announce now, or wait if there is nothing to announce. Whoever is
// notified that the server is down is also notified of the end, even if the server has recovered
// meanwhile.
func (m *machine) announcement(now time.Time) action {
	switch {
	case m.state == Up, m.state == Doubted:
	case !m.announced:
		m.announced = true
		if m.logged = due(m.loggedAt, now); m.logged {
			m.loggedAt = now
		}
		return announceDown
	case m.state == Recovered:
		m.announced = false
		if m.logged && now.Sub(m.wentDown) >= blip {
			m.longLoggedAt = m.loggedAt
		}
		return announceUp
	case m.logged && due(m.loggedAt, now), !m.logged && now.Sub(m.wentDown) >= blip && due(m.longLoggedAt, now):
		m.logged, m.loggedAt = true, now
		return announceStillDown
	}
	return wait
}

// due reports whether a line may be logged now if the last one was logged at an earlier time. The zero
// time says that there was none.
func due(last, now time.Time) bool { return last.IsZero() || now.Sub(last) >= logPause }

// announcedUp is called once the listeners have been notified that the server has recovered. From now
// on requests go to it again.
func (m *machine) announcedUp(now time.Time) {
	if m.state == Recovered && !m.announced {
		m.enter(Up, now)
	}
}

// abandon forgets the outage because no listener is left. Each later request finds out for itself,
// within its own timeout, whether the server answers.
func (m *machine) abandon(now time.Time) {
	m.announced = false
	m.enter(Up, now)
}
