package health

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// connectFactor is how many round trips a first call may take: TCP, TLS, a greeting, the call.
	// So a server that answers within that fraction of the timeout can be connected to in time.
	connectFactor = 10
	// minConnectTime is what a call gets at least where a connection may have to be made first.
	minConnectTime = 5 * time.Second
	// notePause is how often a request that needs a server that is down is noted. Requests in between
	// do not take the lock.
	notePause = 20 * time.Millisecond
)

// A Monitor watches one server. It is safe for concurrent use.
type Monitor struct {
	Config

	state atomic.Uint32 // of the machine
	// slowToConnect is whether a new connection may take longer than the timeout. It is assumed
	// until the server has answered within a tenth of it.
	slowToConnect atomic.Bool
	created       time.Time
	notedUntil    atomic.Int64 // since created: until then, no other request needs to be noted

	mu         sync.Mutex
	machine    machine
	changed    chan struct{} // closed when the state changes
	supervised bool          // by a goroutine: see supervise
	wake       chan struct{} // wakes that goroutine
	audience   audience      // used by that goroutine alone
}

// NewMonitor returns the Monitor of a server that is up, as far as anybody knows.
func NewMonitor(c Config) *Monitor {
	m := &Monitor{Config: c, created: time.Now(), changed: make(chan struct{}), wake: make(chan struct{}, 1)}
	m.machine = machine{untested: true, poolSize: c.PoolSize}
	m.slowToConnect.Store(true)
	return m
}

// Up reports whether requests should be sent.
func (m *Monitor) Up() bool { return State(m.state.Load()) == Up }

// SlowToConnect reports whether a call may take longer than the timeout if it has to connect first. Such a
// call should continue after its caller has left, so that the next one finds a connection.
func (m *Monitor) SlowToConnect() bool { return m.slowToConnect.Load() }

// ConnectTimeout is how long a call gets that may have to connect first.
func ConnectTimeout(timeout time.Duration) time.Duration {
	return max(connectFactor*timeout, minConnectTime)
}

// CallTimeout returns how long a call may take that no request waits for.
func (m *Monitor) CallTimeout() time.Duration {
	if m.SlowToConnect() {
		return ConnectTimeout(m.Timeout)
	}
	return m.Timeout
}

// Answered records that a request was answered without an error. changed says whether the request made
// the server change something: only such a request ends an outage, because a server that is read-only or
// full still answers other requests.
func (m *Monitor) Answered(began time.Time, changed bool) {
	if m.Up() && !m.SlowToConnect() {
		return
	}
	now := time.Now()
	m.noteSpeed(now.Sub(began))
	switch {
	case !changed && !m.Up(): // while the server is up, any answer shows that there is a connection
	case now.Sub(began) > m.Timeout:
		m.record(AnsweredLate, began, nil)
	default:
		m.record(Answered, began, nil)
	}
}

// noteSpeed notes that the server is near if a call took a tenth of the timeout at most.
func (m *Monitor) noteSpeed(took time.Duration) {
	if took*connectFactor <= m.Timeout {
		m.slowToConnect.Store(false)
	}
}

// Failed records that a request ended with an error. The request was allowed to take so long.
func (m *Monitor) Failed(o Outcome, began time.Time, allowed time.Duration, cause error) {
	m.record(m.weigh(o, began, allowed), began, cause)
}

// weigh turns TimedOut into maybeTimedOut if the timeout may be the fault of this process or of a new
// connection: if it was noticed late, if connecting may take longer than the timeout, or if goroutines
// wait for a processor.
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

func (m *Monitor) record(o Outcome, began time.Time, cause error) {
	m.update(func(h *machine, now time.Time) { h.record(o, began, now, cause) })
}

// Await waits until the server is up, and reports whether it is. It waits only while an answer can
// be expected soon: while the server is doubted, and for a moment if no request has wanted it for a
// while. It returns early when ctx ends or until is closed.
func (m *Monitor) Await(ctx context.Context, until <-chan struct{}) bool {
	for !m.Up() {
		left, changed := m.want()
		if left <= 0 {
			return m.Up()
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-until:
		case <-ctx.Done():
		}
		timer.Stop()
		if isClosed(until) || ctx.Err() != nil {
			return false
		}
	}
	return true
}

// want notes that a request needs the server. It returns how long the request may wait, and the channel
// that is closed when the state changes.
func (m *Monitor) want() (left time.Duration, changed <-chan struct{}) {
	if State(m.state.Load()) == Down && int64(time.Since(m.created)) < m.notedUntil.Load() {
		return 0, nil
	}
	m.update(func(h *machine, now time.Time) {
		left, changed = h.want(now), m.changed
		if left == 0 {
			m.notedUntil.Store(int64(now.Sub(m.created) + notePause))
		}
	})
	return left, changed
}

// A Snapshot is the state of a server at an instant.
type Snapshot struct {
	State State
	Since time.Time // zero if it has always been up
	Cause error     // why it is not up
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
func (m *Monitor) update(change func(h *machine, now time.Time)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.machine.state
	change(&m.machine, time.Now())
	m.publishLocked(before)
	m.superviseLocked()
}

// publishLocked wakes the requests that wait for a change if the state is not the one before.
func (m *Monitor) publishLocked(before State) {
	if m.machine.state != before {
		m.state.Store(uint32(m.machine.state))
		close(m.changed)
		m.changed = make(chan struct{})
	}
}

// superviseLocked starts the supervisor if the server needs one and has none, and wakes it.
func (m *Monitor) superviseLocked() {
	if m.machine.state == Up {
		return
	}
	if !m.supervised {
		m.supervised = true
		go m.supervise()
	}
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Refresh makes the supervisor look at the listeners again. Call it after a Subscription was closed.
func (m *Monitor) Refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.superviseLocked()
}

// supervise does what the machine says until the server is up or nothing more can be done. Its probes end
// when it ends.
func (m *Monitor) supervise() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		do, pause := m.next()
		switch do {
		case stop: // from here on another goroutine may supervise
			return
		case probe, probePatiently:
			go m.probe(ctx, time.Now(), do == probePatiently)
		case announceDown:
			m.announceDown(ctx)
		case announceStillDown:
			m.audience.tellOne(ctx, m.change(ctx, StillDown))
		case announceUp:
			m.announceUp(ctx)
		case wait:
			timer := time.NewTimer(pause)
			select {
			case <-m.wake:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// next returns what to do now. If that is to wait, it also returns for how long at most.
func (m *Monitor) next() (do action, pause time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, version := m.machine.state, m.Listeners.version.Load()
	came := m.machine.announced && m.machine.state == Down && version != m.audience.version
	switch nobody := !m.Listeners.anyOpen(); {
	case came, nobody && len(m.audience.told) > 0:
		do = announceDown // to listeners that came later; for those that left it is over
	case nobody:
		do = stop
		m.machine.abandon(time.Now())
	default:
		do, pause = m.machine.next(time.Now())
	}
	if do == announceDown {
		m.audience.version = version
	}
	m.publishLocked(before)
	m.supervised = do != stop
	return do, pause
}

// probe makes one call, or two if the first one was answered but took longer than a request may wait: it
// may have taken so long because it had to connect, and the second one finds the connection.
func (m *Monitor) probe(ctx context.Context, began time.Time, patient bool) {
	timeout := m.Timeout
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
			m.slowToConnect.Store(true)
		}
	}
	m.update(func(h *machine, now time.Time) { h.probeEnded(patient, o, began, now, err) })
}

// callProber makes one call of a probe.
func (m *Monitor) callProber(ctx context.Context, timeout time.Duration, cause error) (Outcome, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	o, err := m.Prober.Probe(bounded, cause)
	if err != nil && ctx.Err() != nil { // the supervisor has ended
		return Inconclusive, err
	}
	return m.weigh(o, began, timeout), err
}

// change returns a Change about the current outage.
func (m *Monitor) change(ctx context.Context, e Event) Change {
	m.mu.Lock()
	c := Change{Event: e, Cause: m.machine.cause, Lasted: time.Since(m.machine.wentDown), Log: m.machine.logged}
	m.mu.Unlock()
	if e == CameBack || e == TakenOver {
		c.Cause = nil
	}
	c.Address = m.Prober.Address(ctx, c.Cause) // it may have to ask
	return c
}

// announceDown notifies the listeners that do not know yet that the server is down.
func (m *Monitor) announceDown(ctx context.Context) {
	down := m.change(ctx, WentDown)
	over := Change{Event: CameBack, Address: down.Address, Lasted: down.Lasted}
	m.audience.update(ctx, m.Listeners.current(), down, over)
}

// announceUp notifies the listeners that were notified that the server is down. Afterwards requests go to
// the server again.
func (m *Monitor) announceUp(ctx context.Context) {
	m.mu.Lock()
	event := CameBack
	if m.machine.replaced {
		event = TakenOver
	}
	m.mu.Unlock()
	m.audience.tellAll(ctx, m.change(ctx, event))
	m.audience.told = nil
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

// processBusy reports whether goroutines wait long for a processor. The answer of a server may then
// have arrived without anybody having read it.
func processBusy() bool {
	for range 4 {
		began := time.Now()
		runtime.Gosched() // goes behind all goroutines that can run
		if time.Since(began) > time.Millisecond {
			return true
		}
	}
	return false
}
