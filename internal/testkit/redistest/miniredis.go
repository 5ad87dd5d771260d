package redistest

import (
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// Miniredis starts a Redis inside the test's own process, which ends with the test. A test of a 32-bit program is skipped.
func Miniredis(tb testing.TB) *miniredis.Miniredis {
	tb.Helper()
	m, err := embedded.Start()
	if errors.Is(err, embedded.ErrBits) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(m.Close)
	return m
}
