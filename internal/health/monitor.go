package health

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connectFactor is assumed to be the largest number of round trips that a call takes if it has to
	// connect first: for TCP, for TLS, for a greeting and for the call itself. If a server answers within a
	// tenth of the timeout, a call that has to connect should therefore end within the timeout.
	connectFactor = 10
	// minConnectTime is the least time that a call gets if it may have to connect first.
	minConnectTime = 5 * time.Second
	// notePause is the pause after noteRequest has noted a request that must not wait. While the server is
	// down, requests that come during the pause are not noted, and do not take the lock. Only the state Down
	// needs this pause: requests rarely wait there, so there may be very many of them. In the other states,
	// a request waits, and needs the channel changed, which the lock guards.
	notePause = 20 * time.Millisecond
)

// A Monitor watches one server. It is safe for concurrent use.
type Monitor struct {
	Config

	state atomic.Uint32 // a copy of machine.state that can be read without the lock
	// slowToConnect says whether a new connection may take longer than the timeout. It is true until the
	// server has answered within a tenth of the timeout. It becomes true again when a probe was slow only
	// because it had to connect.
	slowToConnect atomic.Bool
	created       time.Time
	notedUntil    atomic.Int64 // until then, as a time since created, noteRequest notes no request while the server is down

	mu         sync.Mutex
	machine    machine
	changed    chan struct{} // closed when the state changes
	supervised bool          // a goroutine runs supervise
	poke       chan struct{} // makes that goroutine look at the machine again
	audience   audience      // used by that goroutine alone
}

// NewMonitor returns the Monitor of a server that is assumed to be up.
func NewMonitor(c Config) *Monitor {
	m := &Monitor{Config: c, created: time.Now(), changed: make(chan struct{}), poke: make(chan struct{}, 1)}
	m.machine = machine{untested: true, poolSize: c.PoolSize}
	m.slowToConnect.Store(true)
	return m
}

// Up reports whether requests should be sent.
func (m *Monitor) Up() bool { return State(m.state.Load()) == Up }

// SlowToConnect reports whether a call may take longer than the timeout if it has to connect first. Such a
// call should continue after its caller has stopped waiting, so that the next call finds a connection.
func (m *Monitor) SlowToConnect() bool { return m.slowToConnect.Load() }

// ConnectTimeout returns how long a call may take if it may have to connect first, in a process where all
// other calls may take timeout: ten times as long, but at least 5 seconds.
func ConnectTimeout(timeout time.Duration) time.Duration {
	return max(connectFactor*timeout, minConnectTime)
}

// CallTimeout returns how long a call may take if no request waits for it.
func (m *Monitor) CallTimeout() time.Duration {
	if m.SlowToConnect() {
		return ConnectTimeout(m.Timeout)
	}
	return m.Timeout
}

// Answered records that a request was answered without an error. began is when the request began. wrote
// says whether the request made the server change something. A request that changed nothing ends neither a
// doubt nor an outage, because a server that is read-only or full still answers such requests.
func (m *Monitor) Answered(began time.Time, wrote bool) {
	if m.Up() && !m.SlowToConnect() {
		return
	}
	now := time.Now()
	m.noteSpeed(now.Sub(began))
	// While the server is up, answers of both kinds are recorded, because the first answer shows that a
	// connection can be made. While the server is not up, only an answer to a write is recorded.
	switch {
	case !wrote && !m.Up():
	case now.Sub(began) > m.Timeout:
		m.recordCall(AnsweredLate, began, nil)
	default:
		m.recordCall(Answered, began, nil)
	}
}

// noteSpeed notes that connecting is not slow if a call took no longer than a tenth of the timeout.
func (m *Monitor) noteSpeed(took time.Duration) {
	if took*connectFactor <= m.Timeout {
		m.slowToConnect.Store(false)
	}
}

// Failed records that a request ended with an error. allowed is how long the request was allowed to
// take. cause is the error. It must not be nil, because probes and listeners get it.
func (m *Monitor) Failed(o Outcome, began time.Time, allowed time.Duration, cause error) {
	m.recordCall(m.weigh(o, began, allowed), began, cause)
}

// weigh turns TimedOut into maybeTimedOut if the timeout may be the fault of this process or of a new
// connection. There are three such cases: the timeout was noticed late, connecting may take longer than
// the timeout, or goroutines wait for a processor.
func (m *Monitor) weigh(o Outcome, began time.Time, allowed time.Duration) Outcome {
	if o != TimedOut {
		return o
	}
	late := time.Since(began) > allowed+max(allowed/4, 50*time.Millisecond)
	if late || m.SlowToConnect() || processBusy() {
		return maybeTimedOut
	}
	return TimedOut
}

func (m *Monitor) recordCall(o Outcome, began time.Time, cause error) {
	m.update(func(mc *machine, now time.Time) { mc.record(o, began, now, cause) })
}

// Await waits until the server is up, and reports whether it is. Call it before each request. It waits
// only while the server may soon be up:
//
//   - while the server is doubted, for three seconds at most;
//   - while the server is down, only until 100 ms after the first request that follows a second without
//     requests;
//   - while the listeners are being notified that the server has recovered, however long that takes.
//
// If it has to wait, Await returns false when ctx ends or the channel timeout is closed. timeout may be
// nil. If the server is up, Await returns true even if ctx has ended.
func (m *Monitor) Await(ctx context.Context, timeout <-chan struct{}) bool {
	for !m.Up() {
		left, changed := m.noteRequest()
		if left <= 0 {
			return m.Up()
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-timeout:
		case <-ctx.Done():
		}
		timer.Stop()
		if isClosed(timeout) || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// noteRequest notes that a request needs the server. It returns how long the request should wait, and
// the channel that is closed when the state changes. If left is 0 or less, the request should not wait, and
// the channel may be nil.
func (m *Monitor) noteRequest() (left time.Duration, changed <-chan struct{}) {
	if State(m.state.Load()) == Down && int64(time.Since(m.created)) < m.notedUntil.Load() {
		return 0, nil
	}
	m.update(func(mc *machine, now time.Time) {
		left, changed = mc.want(now), m.changed
		if left == 0 {
			m.notedUntil.Store(int64(now.Sub(m.created) + notePause))
		}
	})
	return left, changed
}

// A Snapshot is the state of a server at an instant.
type Snapshot struct {
	State State
	Since time.Time // when the server entered the state; zero while it is up
	Cause error     // why the server is not up; nil while it is up
}

// Snapshot returns the present state.
func (m *Monitor) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.machine.state == Up {
		return Snapshot{}
	}
	return Snapshot{m.machine.state, m.machine.since, m.machine.cause}
}

// update changes the machine and makes the supervisor act on the change.
func (m *Monitor) update(act func(mc *machine, now time.Time)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.machine.state
	act(&m.machine, time.Now())
	m.publishLocked(old)
	m.superviseLocked()
}

// publishLocked compares the state of the machine with the state old. If they differ, it copies the new
// state into m.state, and wakes the requests that wait for a change.
func (m *Monitor) publishLocked(old State) {
	if m.machine.state != old {
		m.state.Store(uint32(m.machine.state))
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// superviseLocked makes the supervisor look at the machine again if the server is not up. It starts the
// supervisor if none is running.
func (m *Monitor) superviseLocked() {
	if m.machine.state == Up {
		return
	}
	if !m.supervised {
		m.supervised = true
		go m.supervise()
	}
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Refresh makes the supervisor look at the Listeners again if the server is not up. The supervisor then
// notifies the listeners that have subscribed or unsubscribed during the outage. If nobody is subscribed
// any more, the server counts as up again. Refresh does not wait for the supervisor.
//
// The Listeners do not know their Monitors, so whoever closes a Subscription must call Refresh. Package
// redisstore does so when a Store closes.
func (m *Monitor) Refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.superviseLocked()
}

// supervise is what the supervisor's goroutine runs. It does what nextAction says, until that is stop. When
// it ends, its probes are canceled.
func (m *Monitor) supervise() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		do, pause := m.nextAction()
		switch do {
		case stop: // another supervisor may be running by now
			return
		case probe, probePatiently:
			go m.probe(ctx, time.Now(), do == probePatiently)
		case announceDown:
			m.announceDown(ctx)
		case announceStillDown:
			m.audience.notifyLogger(ctx, m.newChange(ctx, StillDown))
		case announceUp:
			m.announceUp(ctx)
		case wait:
			timer := time.NewTimer(pause)
			select {
			case <-m.poke:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// nextAction returns what the supervisor should do now. If the action is wait, it also returns for how long
// at most. The machine chooses the action, unless listeners have subscribed or unsubscribed during an outage,
// or nobody is subscribed. After a stop, the calling goroutine is no longer the supervisor and must end.
func (m *Monitor) nextAction() (do action, pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, version := m.machine.state, m.Listeners.version.Load()
	listenersChanged := m.machine.announced && m.machine.state == Down && version != m.audience.version
	nobody := !m.Listeners.AnyOpen()
	switch {
	case listenersChanged, nobody && len(m.audience.notified) > 0:
		do = announceDown // it notifies listeners that have subscribed since, and those that have unsubscribed
	case nobody:
		do = stop
		m.machine.abandon(time.Now())
	default:
		do, pause = m.machine.next(time.Now())
	}
	if do == announceDown {
		m.audience.version = version
	}
	m.publishLocked(old)
	m.supervised = do != stop
	return do, pause
}

// probe makes one call of the Prober, or two, and tells the machine the outcome. If the first call was
// answered, but took longer than a request may wait, the reason may be that it had to connect. A second call
// then finds out, because it uses the connection that the first call has made.
func (m *Monitor) probe(ctx context.Context, began time.Time, patient bool) {
	timeout := m.Timeout
	// If connecting is slow, a probe in a doubt needs the time to connect even if the machine is in a
	// hurry.
	if patient || m.SlowToConnect() && State(m.state.Load()) == Doubted {
		timeout = ConnectTimeout(m.Timeout)
	}
	m.mu.Lock()
	cause := m.machine.cause
	m.mu.Unlock()
	o, err := m.callProber(ctx, timeout, cause)
	switch took := time.Since(began); {
	case o != Answered:
	case took <= m.Timeout:
		m.noteSpeed(took)
	default:
		began = time.Now()
		if o, err = m.callProber(ctx, m.Timeout, nil); o == Answered {
			m.slowToConnect.Store(true) // the first call was slow only because it had to connect
		}
	}
	m.update(func(mc *machine, now time.Time) { mc.probeEnded(patient, o, began, now, err) })
}

// callProber makes one call of a probe.
func (m *Monitor) callProber(ctx context.Context, timeout time.Duration, cause error) (Outcome, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	o, err := m.Prober.Probe(bounded, cause)
	if err != nil && ctx.Err() != nil { // canceled, because the supervisor has ended
		return Inconclusive, err
	}
	return m.weigh(o, began, timeout), err
}

// newChange returns a Change about the current outage.
func (m *Monitor) newChange(ctx context.Context, e Event) Change {
	m.mu.Lock()
	c := Change{Event: e, Cause: m.machine.cause, Lasted: time.Since(m.machine.wentDown), Log: m.machine.logged}
	m.mu.Unlock()
	if e == CameBack || e == TakenOver {
		c.Cause = nil
	}
	c.Address = m.Prober.Address(ctx, c.Cause)
	return c
}

// announceDown notifies the listeners that do not know yet that the server is down, and those that have
// unsubscribed since they were notified.
func (m *Monitor) announceDown(ctx context.Context) {
	down := m.newChange(ctx, WentDown)
	over := Change{Event: CameBack, Address: down.Address, Lasted: down.Lasted}
	m.audience.replace(ctx, m.Listeners.current(), down, over)
}

// announceUp notifies the audience that the outage is over. Requests are sent to the server again after
// that.
func (m *Monitor) announceUp(ctx context.Context) {
	m.mu.Lock()
	event := CameBack
	if m.machine.replaced {
		event = TakenOver
	}
	m.mu.Unlock()
	m.audience.notifyAll(ctx, m.newChange(ctx, event))
	m.audience.notified = nil
	m.update((*machine).announcedUp)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// processBusy reports whether goroutines wait long for a processor. In such a process, the answer of a
// server may have arrived without having been read.
func processBusy() bool {
	for range 4 {
		began := time.Now()
		runtime.Gosched() // lets the other goroutines that can run go first
		if time.Since(began) > time.Millisecond {
			return true
		}
	}
	return false
}
