package check

import (
	"net"
	"sync"
	"time"
)

// A Lateness measures how late the machine is: how much longer than asked for a timer of this process takes, and how
// long a byte takes over the loopback and back. It does not call the library, whose faults leave it as it is.
type Lateness struct {
	end     chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	worst   time.Duration
}

const measureEvery = 2 * time.Millisecond

// MeasureLateness starts to measure.
func MeasureLateness() *Lateness {
	l := &Lateness{end: make(chan struct{})}
	l.running.Go(func() { l.loop(sleep) })
	if here, there, err := loopback(); err == nil { // else the timers alone will do
		l.running.Go(func() {
			defer func() { _ = here.Close() }()
			l.loop(func() time.Duration { return exchange(here) })
		})
		l.running.Go(func() { echo(there) })
	}
	return l
}

// Worst returns how late the machine was at worst up to now.
func (l *Lateness) Worst() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.worst
}

// Stop ends the measurement and returns how late the machine was at worst.
func (l *Lateness) Stop() time.Duration {
	close(l.end)
	l.running.Wait()
	return l.Worst()
}

func (l *Lateness) loop(measure func() time.Duration) {
	for {
		late := measure()
		l.mu.Lock()
		l.worst = max(l.worst, late)
		l.mu.Unlock()
		select {
		case <-l.end:
			return
		default:
		}
	}
}

func sleep() time.Duration {
	start := time.Now()
	time.Sleep(measureEvery)
	return time.Since(start) - measureEvery
}

func exchange(conn net.Conn) time.Duration {
	start := time.Now()
	_, _ = conn.Write([]byte{0})
	_, _ = conn.Read(make([]byte, 1))
	took := time.Since(start)
	time.Sleep(measureEvery)
	return took
}

// echo returns each byte until the other end closes.
func echo(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	b := make([]byte, 1)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

// loopback returns the two ends of a connection.
func loopback() (here, there net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	here, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	there, err = l.Accept()
	if err != nil {
		_ = here.Close()
		return nil, nil, err
	}
	return here, there, nil
}
