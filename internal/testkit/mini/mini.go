// Package mini starts miniredis, a Redis inside the test's own process. It is apart from redistest, whose users then do
// not require miniredis.
package mini

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// Redis starts a server that ends with the test. The test of a 32-bit program is skipped: see [embedded.ErrBits].
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

// Driven starts a server whose clock stands, until a test advances it, and returns its address.
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
