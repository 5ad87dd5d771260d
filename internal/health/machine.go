package health

import "time"

const (
	// maxDoubt is how long a server can be doubted. After that it counts as down.
	maxDoubt = 3 * time.Second
	// While a server is down and requests need it, the pause between probes is 1% of the outage so far,
	// within these bounds. A probe does not wait for the one before: up to maxProbes are in flight.
	minProbePause = 100 * time.Millisecond
	maxProbePause = time.Second
	maxProbes     = 8
	// If no request has needed the server for idleAfter, the pause is idlePause. The next request then
	// triggers a probe at once, unless maxProbes are in flight, and waits up to wakePause for its result.
	idleAfter = time.Second
	idlePause = 5 * time.Second
	wakePause = 100 * time.Millisecond
	// logPause and blip are part of the rule of the log: see machine.announcement.
	logPause = time.Minute
	blip     = time.Second
)

// A machine holds the state of one server and the rules for changing it. It has no clock and does no
// I/O: callers report what happened and when, and next tells them what to do.
type machine struct {
	state State
	since time.Time // when it entered the state
	cause error     // the last error seen: why the server is not up

	untested bool // no call has been recorded as answered yet
	poolSize int
	broken   int // how many probes found a broken connection since the server is in doubt

	probes       int  // in flight
	probedHere   bool // one of them was started in the present state
	patientProbe bool // one of them is allowed the time that a new connection can take
	hurry        bool // a connection broke: see startProbe
	cannotProbe  bool // there is nothing to probe with: no probe begins until a request needs the server
	replaced     bool // another server took over

	nextProbe time.Time
	wantedAt  time.Time // when a request last needed the server
	wokenAt   time.Time // when one needed it after a quiet period

	wentDown  time.Time
	announced bool // listeners have been notified that the server is down

	// For the rule of the log: see announcement.
	logged       bool      // the present outage has a line that says that the server is down
	loggedAt     time.Time // when such a line was last logged, for any outage
	longLoggedAt time.Time // when such a line was last logged for the last outage that had one, has ended and was no blip
}

// enter switches to another state and resets what belongs to the old one.
func (mc *machine) enter(s State, now time.Time) {
	mc.state, mc.since, mc.broken, mc.nextProbe, mc.probedHere, mc.cannotProbe = s, now, 0, now, false, false
	if s == Down {
		mc.wentDown, mc.wantedAt = now, now
	}
}

// record handles the outcome of a request or probe. A call that began before the current state was
// entered is ignored: it says how things were, not how they are.
func (mc *machine) record(o Outcome, began, now time.Time, cause error) {
	first := mc.untested && (o == Answered || o == AnsweredLate)
	mc.untested = mc.untested && !first
	switch {
	case first && mc.state == Doubted:
		// The first call also opens the connection, so it may have been slow for that reason alone.
		mc.enter(Up, now)
	case began.Before(mc.since), o == Inconclusive:
	case mc.state == Up && (o == ConnectionLost || o == maybeTimedOut):
		mc.cause, mc.hurry = cause, o == ConnectionLost
		mc.enter(Doubted, now)
	case mc.state == Up && (o == TimedOut || o == Unavailable):
		mc.cause = cause
		mc.enter(Down, now)
	case mc.state == Doubted:
		mc.recordDoubted(o, now, cause)
	case mc.state == Down && (o == Answered || o == Replaced):
		mc.replaced = o == Replaced
		mc.enter(Recovered, now)
	case mc.state == Down && cause != nil:
		mc.cause = cause
	}
}

func (mc *machine) recordDoubted(o Outcome, now time.Time, cause error) {
	if cause != nil {
		mc.cause = cause
	}
	switch {
	case o == Answered, o == Rejected, o == Replaced:
		mc.enter(Up, now)
	case o == ConnectionLost && mc.broken < mc.poolSize:
		// Every pooled connection may be broken. The one after the last of them is new.
		mc.broken++
	case o == maybeTimedOut:
		mc.hurry = false
	default:
		mc.enter(Down, now)
	}
}

// want notes that a request needs the server. It returns how long that request should wait for the
// state to change; 0 means not at all. If the state has not changed by then, the request calls want again.
func (mc *machine) want(now time.Time) time.Duration {
	idle := now.Sub(mc.wantedAt) > idleAfter
	mc.wantedAt, mc.cannotProbe = now, false
	switch mc.state {
	case Up:
		return 0
	case Doubted:
		return mc.since.Add(maxDoubt).Sub(now)
	case Recovered:
		return wakePause // and again, until the listeners have been notified
	case Down:
		if idle {
			mc.wokenAt, mc.nextProbe = now, now
		}
	}
	return max(0, mc.wokenAt.Add(wakePause).Sub(now))
}

// An action is what the supervisor should do next.
type action uint8

const (
	// wait means to wait for an event, or for the time that next returns.
	wait action = iota
	// probe means to start a probe with the timeout of a request.
	probe
	// probePatiently means to start a probe with the time that a new connection can take.
	probePatiently
	// announceDown means to notify all listeners that the server is down.
	announceDown
	// announceStillDown means to notify the listener that logs.
	announceStillDown
	// announceUp means to notify all listeners that were notified that the server is down.
	announceUp
	// stop means that there is nothing left to do: the server is up, or there is nothing to probe with.
	stop
)

// next returns what to do now. If that is to wait, next also returns for how long at most.
func (mc *machine) next(now time.Time) (action, time.Duration) {
	if mc.state == Doubted && now.Sub(mc.since) >= maxDoubt {
		mc.enter(Down, now)
	}
	if a := mc.announcement(now); a != wait {
		return a, 0
	}
	switch {
	case mc.state == Up, mc.cannotProbe:
		return stop, 0
	case mc.state == Recovered:
		return wait, 0
	case mc.state == Doubted && (mc.probedHere || mc.probes == maxProbes): // one probe at a time
		return wait, mc.since.Add(maxDoubt).Sub(now)
	case mc.probes == maxProbes:
		return wait, maxProbePause
	case now.Before(mc.nextProbe):
		return wait, mc.nextProbe.Sub(now)
	}
	return mc.startProbe(now), 0
}

// startProbe notes that a probe begins. The probe gets the time that a new connection can take, with two
// exceptions. In a doubt that a broken connection began, it gets the timeout of a request, because
// requests wait for it. (Monitor.probe allows more even then if the server is slow to connect to.) While
// the server is down, one patient probe at a time is enough.
func (mc *machine) startProbe(now time.Time) action {
	mc.probes, mc.probedHere = mc.probes+1, true
	switch {
	case mc.state == Doubted:
		mc.nextProbe = now
	case now.Sub(mc.wantedAt) > idleAfter:
		mc.nextProbe = now.Add(idlePause)
	default:
		mc.nextProbe = now.Add(min(max(minProbePause, now.Sub(mc.wentDown)/100), maxProbePause))
	}
	if mc.state == Doubted && mc.hurry || mc.state == Down && mc.patientProbe {
		return probe
	}
	mc.patientProbe = true
	return probePatiently
}

// probeEnded handles the outcome of a probe that next asked for. began is when the last call of the probe
// began, so a probe of an earlier state counts as one of the present state if its second call is.
func (mc *machine) probeEnded(patient bool, o Outcome, began, now time.Time, cause error) {
	mc.probes--
	mc.patientProbe = mc.patientProbe && !patient
	mc.probedHere = mc.probedHere && began.Before(mc.since)
	if mc.state == Doubted && o == Inconclusive {
		mc.nextProbe = now.Add(minProbePause) // the next one may say nothing either, and as fast
	}
	mc.record(o, began, now, cause)
	mc.cannotProbe = mc.cannotProbe || o == NotProbed
}

// announcement returns what to announce now, or wait if there is nothing to announce. Listeners that were
// notified that the server is down are also notified of the end, even if the server has recovered
// meanwhile.
//
// announcement also holds the rule of the log. A server that fails again and again has at most one
// line a minute (logPause) that says that it is down. The line of a blip, which is an outage of less
// than a second, does not delay the line of a longer outage. The end is logged if the outage has a
// line.
//
//	lines in the minute before     the outage is logged
//	none                           when it begins, then once a minute
//	of a blip alone                after its first second, then once a minute
//	of a longer outage             a minute after the last of these lines, then once a minute
func (mc *machine) announcement(now time.Time) action {
	switch {
	case mc.state == Up, mc.state == Doubted:
	case !mc.announced:
		mc.announced = true
		if mc.logged = due(mc.loggedAt, now); mc.logged {
			mc.loggedAt = now
		}
		return announceDown
	case mc.state == Recovered:
		mc.announced = false
		if mc.logged && now.Sub(mc.wentDown) >= blip {
			mc.longLoggedAt = mc.loggedAt
		}
		return announceUp
	case mc.logged && due(mc.loggedAt, now), !mc.logged && now.Sub(mc.wentDown) >= blip && due(mc.longLoggedAt, now):
		mc.logged, mc.loggedAt = true, now
		return announceStillDown
	}
	return wait
}

// due reports whether a line may be logged now if the last one was logged at an earlier time. The zero
// time says that there was none.
func due(last, now time.Time) bool { return last.IsZero() || now.Sub(last) >= logPause }

// announcedUp is called once the listeners have been notified that the server has recovered. From now
// on requests go to it again.
func (mc *machine) announcedUp(now time.Time) {
	if mc.state == Recovered && !mc.announced {
		mc.enter(Up, now)
	}
}

// abandon disables the circuit breaker because nobody is subscribed: the server counts as up again,
// whether it was doubted or down. Each later request finds out for itself, within its own timeout, whether
// the server answers.
func (mc *machine) abandon(now time.Time) {
	mc.announced = false
	mc.enter(Up, now)
}
