// Package mini starts miniredis, a Redis inside the test's own process. It is apart from redistest, whose users then do
// not require miniredis.
package mini

import (
	"errors"
	"testing"

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
