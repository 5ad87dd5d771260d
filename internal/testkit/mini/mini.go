// Package mini starts miniredis, a Redis inside the test's own process. It is separate from redistest so that users of
// redistest do not depend on miniredis.
package mini

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// Redis starts a server that ends with the test. In a 32-bit program it skips the test: see [embedded.ErrBits].
func Redis(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	m, err := embedded.Start()
	if errors.Is(err, embedded.ErrBits) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(m.Close)
	return m
}

// Driven starts a server whose clock stands until the test advances it. It returns the server's address, and functions that
// read and advance the clock.
func Driven(tb testing.TB) (addr string, now func() time.Time, advance func(time.Duration)) {
	tb.Helper()
	m := Redis(tb)
	var micros atomic.Int64
	now = func() time.Time { return time.UnixMicro(micros.Load()) }
	advance = func(d time.Duration) {
		micros.Add(d.Microseconds())
		m.SetTime(now())
	}
	advance(1_800_000_012_345_678 * time.Microsecond)
	return m.Addr(), now, advance
}
