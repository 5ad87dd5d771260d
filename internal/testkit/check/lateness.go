package check

import (
	"io"
	"net"
	"sync"
	"time"
)

const measureEvery = 2 * time.Millisecond

// measureLateness measures the lateness of the machine until the caller calls the returned function, which returns the
// worst value: how much longer than requested a timer of this process takes, and how long a byte takes over the loopback
// and back. It does not call the library, so faults of the library do not affect it.
func measureLateness() (stop func() time.Duration) {
	end := make(chan struct{})
	var measuring, echoing sync.WaitGroup
	var worst time.Duration
	here, there, err := loopback()
	if err == nil { // without a connection, the timers suffice
		echoing.Go(func() { _, _ = io.Copy(there, there) })
	}
	measuring.Go(func() {
		for {
			start := time.Now()
			time.Sleep(measureEvery)
			late := time.Since(start) - measureEvery
			if err == nil {
				start = time.Now()
				_, _ = here.Write([]byte{0})
				_, _ = here.Read(make([]byte, 1))
				late = max(late, time.Since(start))
			}
			worst = max(worst, late)
			select {
			case <-end:
				return
			default:
			}
		}
	})
	return func() time.Duration {
		close(end)
		measuring.Wait()
		if err == nil {
			_, _ = here.Close(), there.Close()
			echoing.Wait()
		}
		return worst
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
