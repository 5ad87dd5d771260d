// Package embedded starts miniredis, a Redis inside the process, for the example apps
// and for tests on machines without Redis. Its clock runs, so that keys expire. It is
// not for production, nor for 32-bit programs.
package embedded

import (
	"errors"
	"strconv"

	"github.com/alicebob/miniredis/v2"
)

// ErrBits is the error of Start in a 32-bit program: miniredis replies with an int, and
// an instant in microseconds does not fit into 32 bits. A real Redis works there, too.
var ErrBits = errors.New("the embedded Redis (miniredis) needs a 64-bit program; this one has 32 bits and needs a real Redis")

// Start starts an in-process Redis on a free loopback port. The caller closes it.
// In a 32-bit program the error is [ErrBits].
func Start() (*miniredis.Miniredis, error) {
	if strconv.IntSize < 64 {
		return nil, ErrBits
	}
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return nil, err
	}
	return m, nil
}
