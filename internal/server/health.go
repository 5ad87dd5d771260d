package server

import (
	"errors"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// A state is what a process does with its decisions on the keys of one server.
type state uint8

const (
	up      state = iota // it asks the server
	doubted              // they wait: probes go one after the other, until one says how it is
	down                 // the outage policy decides, until a probe is answered
	back                 // the server answers again: they wait until that has been told
)

// An outcome is what the end of a call says about the server that was asked, in this order: up to
// slow it has answered without an error, and beyond unsure it is at fault.
type outcome uint8

const (
	answered outcome = iota // in time, and something was written: a server that is read-only, or full, can read
	slow                    // answered, too late
	replied                 // with an error of that call: it is there, and may decide other calls
	unclear                 // it says nothing
	broken                  // the connection has ended: it may have been idle for too long
	unsure                  // not answered in time, which may be for a new connection or a busy process
	silent                  // not answered in time
	unable                  // no connection can be made, the server says that it cannot decide, or any other error
)

const (
	// doubtLasts is how long a server is doubted at most: then it is down.
	doubtLasts = 3 * time.Second
	// connectTime is what a probe has to make a connection to a server that is far: TCP, TLS, HELLO
	// and more.
	connectTime = 5 * time.Second
	// While a server is down the next probe begins after a hundredth of the outage, from probePause
	// to longestPause. There are maxProbes at a time, one of which has the connectTime.
	probePause   = 100 * time.Millisecond
	longestPause = time.Second
	maxProbes    = 8
	// A server that no decision has wanted for quietAfter is probed each quietPause. The next
	// decision has it probed at once, and waits for wakePause.
	quietAfter = time.Second
	quietPause = 5 * time.Second
	wakePause  = 100 * time.Millisecond
	// logPause is the time between two outages that are logged, with as many causes as maxCauses.
	// An outage shorter than moment does not keep a longer one from being logged.
	logPause  = time.Minute
	moment    = time.Second
	maxCauses = 5
)

// health is whether a server answers, as far as a process knows: a state machine without a clock.
// What is done, and when, it says in next. Instants are since started.
type health struct {
	state state
	since time.Duration // when it came to be in that state
	cause error         // why it is down, as last seen
	cold  bool          // it has never answered
	pool  int           // connections of the client's pool: as many may be idle, and dead
	dead  int           // how many were, since it is doubted

	probes   int           // in flight
	probing  bool          // one of them was begun in this state
	patient  bool          // one of them has the connectTime
	hurried  bool          // while it is doubted: a probe has no more time than a decision, but to a server that is far
	closed   bool          // the client is: there is nothing to probe with
	nextAt   time.Duration // when the next probe is due
	wantedAt time.Duration // when a decision last wanted the server
	wakeAt   time.Duration // when one wanted it after a while in which none did

	told         bool          // that it is down
	logged       bool          // this outage is
	loggedAt     time.Duration // when an outage was last logged as begun, or as still there
	longLoggedAt time.Duration // when the last outage was logged that has ended, and had lasted a moment at least
	causes       []string      // those logged
	wentDown     time.Duration
}

// enter changes the state.
func (h *health) enter(s state, now time.Duration) {
	h.state, h.since, h.dead, h.nextAt, h.probing = s, now, 0, now, false
	if s == down {
		h.wentDown, h.wantedAt = now, now
	}
}

// record takes the end of a call that was begun at an instant, of a decision or a probe. What was
// begun before the server came to be in its state says nothing about it any more.
func (h *health) record(o outcome, begun, now time.Duration, cause error) {
	first := h.cold && o <= slow
	h.cold = h.cold && !first
	switch {
	case first && h.state == doubted: // a process's first call makes a connection, and may take longer
		h.enter(up, now)
	case begun < h.since || o == unclear:
	case h.state == up && (o == broken || o == unsure):
		h.cause, h.hurried = cause, o == broken
		h.enter(doubted, now)
	case h.state == up && o > unsure:
		h.cause = cause
		h.enter(down, now)
	case h.state == doubted:
		h.recordDoubted(o, now, cause)
	case h.state == down && o == answered:
		h.enter(back, now)
	case h.state == down && cause != nil:
		h.cause = cause
	}
}

func (h *health) recordDoubted(o outcome, now time.Duration, cause error) {
	if cause != nil {
		h.cause = cause
	}
	switch {
	case o == answered || o == replied: // on a connection that is not dead
		h.enter(up, now)
	case o == broken && h.dead < h.pool:
		h.dead++
	case o == unsure:
		h.hurried = false
	default:
		h.enter(down, now)
	}
}

// wanted notes that a decision wants the server. It returns how long that may wait for a change.
func (h *health) wanted(now time.Duration) time.Duration {
	quiet := now-h.wantedAt > quietAfter
	h.wantedAt = now
	switch {
	case h.state == doubted:
		return h.since + doubtLasts - now
	case h.state == up:
		return 0
	case h.state == back:
		return wakePause
	case quiet:
		h.wakeAt, h.nextAt = now, now
	}
	return max(0, h.wakeAt+wakePause-now)
}

// An action is what is to be done about a server.
type action uint8

const (
	wait           action = iota // for an event, or as long as next says
	probe                        // the server, for the timeout, or longer if it is far and doubted
	probePatiently               // the server, and give it the connectTime
	sayDown                      // that the outage policy decides
	sayCause                     // that it does for another reason
	sayStill                     // that it still does: the beginning was not logged
	sayBack                      // that the server answers again
	rest                         // nothing: it is up, or nothing can be done
)

// next returns what is to be done, and if that is to wait, for how long at most.
func (h *health) next(now time.Duration) (action, time.Duration) {
	if h.state == doubted && now-h.since >= doubtLasts {
		h.enter(down, now)
	}
	if say := h.say(now); say != wait {
		return say, 0
	}
	switch {
	case h.state == up, h.closed:
		h.closed = false
		return rest, 0
	case h.state == back:
		return wait, 0
	case h.probes == maxProbes, h.state == doubted && h.probing:
		return wait, h.longestWait(now)
	case now < h.nextAt:
		return wait, h.nextAt - now
	}
	pause := min(max(probePause, (now-h.wentDown)/100), longestPause)
	if now-h.wantedAt > quietAfter {
		pause = quietPause
	}
	h.nextAt = now + pause
	if h.state == doubted {
		h.nextAt = now // one after the other
	}
	h.probes, h.probing = h.probes+1, true
	if h.state == doubted && h.hurried || h.state == down && h.patient {
		return probe, 0
	}
	h.patient = true
	return probePatiently, 0
}

// unattended has decisions find out by themselves, each in its own time, whether the server
// answers: all who could probe it have closed.
func (h *health) unattended(now time.Duration) {
	h.told = false
	h.enter(up, now)
}

// longestWait returns for how long to wait at most while no further probe may begin.
func (h *health) longestWait(now time.Duration) time.Duration {
	if h.state == doubted {
		return h.since + doubtLasts - now
	}
	return longestPause
}

// probed takes the end of a probe.
func (h *health) probed(patiently bool, o outcome, begun, now time.Duration, cause error) {
	h.probes--
	h.patient = h.patient && !patiently
	h.probing = h.probing && begun < h.since
	h.closed = errors.Is(cause, redis.ErrClosed)
	h.record(o, begun, now, cause)
}

// say returns what is to be said, or wait. Whoever is told that a server is down is told of its
// end.
func (h *health) say(now time.Duration) action {
	switch {
	case h.state <= doubted:
	case !h.told:
		h.told, h.causes = true, nil
		h.logged = h.loggedAt == 0 || now-h.loggedAt >= logPause
		if h.logged {
			h.loggedAt = now
			h.newCause()
		}
		return sayDown
	case h.state == back:
		if h.told = false; h.logged && now-h.wentDown >= moment {
			h.longLoggedAt = h.loggedAt
		}
		return sayBack
	case !h.logged && now-h.wentDown >= moment && (h.longLoggedAt == 0 || now-h.longLoggedAt >= logPause):
		h.logged, h.loggedAt = true, now
		h.newCause()
		return sayStill
	case h.logged && len(h.causes) < maxCauses && h.newCause():
		return sayCause
	}
	return wait
}

// said takes that the end of an outage has been told: decisions go to the server from now on.
func (h *health) said(now time.Duration) {
	if h.state == back && !h.told {
		h.enter(up, now)
	}
}

// newCause notes the cause, and reports whether this outage has not had its like.
func (h *health) newCause() bool {
	kind := likeness(h.cause)
	if slices.Contains(h.causes, kind) || errors.Is(h.cause, net.ErrClosed) { // go-redis closes connections to Sentinel's old master
		return false
	}
	h.causes = append(h.causes, kind)
	return true
}

// likeness returns what two causes have in common that a person would call the same.
func likeness(err error) string {
	var reply redis.Error
	switch {
	case err == nil:
		return ""
	case isTimeout(err):
		return "timeout"
	case errors.As(err, &reply):
		code, _, _ := strings.Cut(reply.Error(), " ")
		return code
	}
	return strings.Map(func(r rune) rune { // ports differ
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
}
