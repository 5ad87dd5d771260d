package health

import "time"

const (
	// maxDoubt is how long a server can be doubted. After that it counts as down.
	maxDoubt = 3 * time.Second
	// While a server is down and requests need it, the pause between the beginnings of two probes is 1% of
	// the time since the outage began, but at least minProbePause and at most maxProbePause. A probe may
	// begin while earlier ones are in flight, up to maxProbes of them.
	minProbePause = 100 * time.Millisecond
	maxProbePause = time.Second
	maxProbes     = 8
	// If no request has needed the server for idleAfter, the pause is idlePause. The next request makes a
	// probe begin at once, unless maxProbes are in flight, and waits up to wakePause for the server to be
	// up.
	idleAfter = time.Second
	idlePause = 5 * time.Second
	wakePause = 100 * time.Millisecond
	// logPause and blip belong to the rule that says which outages are logged: see machine.announcement.
	logPause = time.Minute
	blip     = time.Second
)

// A machine holds the state of one server and the rules for changing it. It has no clock and does no
// I/O: callers report what happened and when, and next tells them what to do. It has no lock either: the
// Monitor's lock guards it.
type machine struct {
	state State
	since time.Time // when the machine entered the state
	cause error     // the latest error of the present doubt or outage: why the server is not up

	untested bool // no call has been recorded as answered yet
	poolSize int  // see Config.PoolSize
	broken   int  // how many connections have broken in the present doubt, without the one that began it

	probes       int  // how many probes are in flight
	probedHere   bool // a probe that was started in the present state is in flight; matters only while the server is doubted
	patientProbe bool // a probe that gets the time that a new connection can take is in flight
	hurry        bool // the doubt began with a broken connection, and no call has timed out since: see startProbe
	cannotProbe  bool // a probe could not be made: no probe begins until a request needs the server
	replaced     bool // the outage ended because another server took over

	nextProbe time.Time // the earliest time for the next probe
	wantedAt  time.Time // when a request last needed the server, or when the server last went down, whichever is later
	wokenAt   time.Time // when a request last came after a pause of idleAfter in the present outage; otherwise zero

	wentDown  time.Time // when the server last went down
	announced bool      // next has returned announceDown for the present outage, but not yet announceUp

	// The following fields are for announcement, which decides which outages are logged. A line is a line in
	// the log that says that the server is down. A blip is an outage that is shorter than the constant blip.
	logged   bool      // the present outage has a line
	loggedAt time.Time // when the latest line was logged, for any outage
	// longLoggedAt is when the last line was logged for the latest outage that is over, has a line and was
	// no blip.
	longLoggedAt time.Time
}

// enter switches to another state and resets what belongs to the old one.
func (mc *machine) enter(s State, now time.Time) {
	mc.state, mc.since, mc.broken, mc.nextProbe, mc.probedHere, mc.cannotProbe = s, now, 0, now, false, false
	if s == Down {
		mc.wentDown, mc.wantedAt, mc.wokenAt = now, now, time.Time{}
	}
}

// record handles the outcome of a request or probe. cause is its error, or nil. A call that began before
// the present state was entered is ignored, because it says how things were, not how they are. The first
// call ever to be answered is an exception: it ends a doubt even if it began before the doubt.
func (mc *machine) record(o Outcome, began, now time.Time, cause error) {
	first := mc.untested && (o == Answered || o == AnsweredLate)
	mc.untested = mc.untested && !first
	switch {
	case first && mc.state == Doubted:
		// The first call also has to connect, which may be the only reason why it was slow.
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

// recordDoubted handles the outcome of a call that began after the present doubt had begun.
func (mc *machine) recordDoubted(o Outcome, now time.Time, cause error) {
	if cause != nil {
		mc.cause = cause
	}
	switch {
	case o == Answered, o == Rejected, o == Replaced:
		mc.enter(Up, now)
	case o == ConnectionLost && mc.broken < mc.poolSize:
		// Every connection in the pool may be broken. The call after poolSize broken connections gets a new
		// connection, so its failure counts.
		mc.broken++
	case o == maybeTimedOut:
		mc.hurry = false
	default:
		mc.enter(Down, now)
	}
}

// want notes that a request needs the server. It returns how long that request should wait for the state
// to change; 0 or less means not at all. If the server is still not up after that time, or after a
// change of the state, the request calls want again.
func (mc *machine) want(now time.Time) time.Duration {
	idle := now.Sub(mc.wantedAt) > idleAfter
	mc.wantedAt, mc.cannotProbe = now, false
	switch mc.state {
	case Up:
		return 0
	case Doubted:
		return mc.since.Add(maxDoubt).Sub(now)
	case Recovered:
		return wakePause // the request calls want again and again, until the listeners have been notified
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
	// wait means to wait for an event, but no longer than next says.
	wait action = iota
	// probe means to start a probe with the timeout of a request.
	probe
	// probePatiently means to start a probe with the time that a new connection can take.
	probePatiently
	// announceDown means to notify all listeners that the server is down.
	announceDown
	// announceStillDown means to notify only the listener that logs, because another line is due.
	announceStillDown
	// announceUp means to notify all listeners that know of the outage that it is over.
	announceUp
	// stop means that there is nothing left to do: the server is up, or there is nothing to probe with, or
	// nobody is subscribed.
	stop
)

// next returns what to do now. If the action is wait, next also returns for how long at most. A doubt that
// has lasted for maxDoubt becomes an outage here.
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
		return wait, 0 // not reached: in this state, there is always something to announce
	case mc.state == Doubted && (mc.probedHere || mc.probes == maxProbes): // a doubt has one probe at a time
		return wait, mc.since.Add(maxDoubt).Sub(now)
	case mc.probes == maxProbes:
		return wait, maxProbePause
	case now.Before(mc.nextProbe):
		return wait, mc.nextProbe.Sub(now)
	}
	return mc.startProbe(now), 0
}

// startProbe notes that a probe begins, and returns probe or probePatiently. A probe is usually patient:
// it gets the time that a new connection can take. In two cases it gets only the timeout of a request:
//
//   - If the doubt began with a broken connection, and no call has timed out since, because requests wait
//     for the result of the probe. (Even then, Monitor.probe allows more if the server is slow to connect to.)
//   - If the server is down and a patient probe is in flight, because one patient probe at a time is enough.
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

// probeEnded handles the outcome of a probe that next asked for. patient says whether next returned
// probePatiently. began is when the last call of the probe began: a probe may make two calls, see
// Monitor.probe. A probe that was started in an earlier state therefore counts for the present state if its
// second call began in the present state. Such a probe also clears probedHere, so a doubt that outlasts it may
// have two probes at a time. This does no harm.
func (mc *machine) probeEnded(patient bool, o Outcome, began, now time.Time, cause error) {
	mc.probes--
	mc.patientProbe = mc.patientProbe && !patient
	mc.probedHere = mc.probedHere && began.Before(mc.since)
	if mc.state == Doubted && o == Inconclusive {
		mc.nextProbe = now.Add(minProbePause) // the next probe may be just as inconclusive, and end just as quickly
	}
	mc.record(o, began, now, cause)
	mc.cannotProbe = mc.cannotProbe || o == NotProbed
}

// announcement returns what to announce now, or wait if there is nothing to announce. If the server
// recovers before the listeners have been notified that it is down, they are notified all the same:
// first that the server is down, and then that it is up.
//
// announcement also decides which outages are logged. A line is a line in the log that says that the
// server is down. If a server fails again and again, its lines are at least a minute (logPause) apart,
// with one exception: the line of a blip, which is an outage of less than a second, does not delay the
// line of a longer outage. The end of an outage is logged if the outage has a line.
//
//	lines in the minute before     when an outage is logged
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

// due reports whether a line may be logged now if the previous line was logged at the time last. A zero
// last means that there was no previous line.
func due(last, now time.Time) bool { return last.IsZero() || now.Sub(last) >= logPause }

// announcedUp is called once the listeners have been notified that the server has recovered. From then
// on, requests are sent to the server again.
func (mc *machine) announcedUp(now time.Time) {
	if mc.state == Recovered && !mc.announced {
		mc.enter(Up, now)
	}
}

// abandon makes the server count as up, whatever its state was, because nobody is subscribed. Requests are
// then sent. If the server does not answer, each request takes its own timeout to find that out. If a
// request fails, the machine leaves the state Up as usual, but the supervisor calls abandon again at once.
func (mc *machine) abandon(now time.Time) {
	mc.announced = false
	mc.enter(Up, now)
}
