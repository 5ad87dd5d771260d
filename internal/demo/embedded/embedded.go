// Package embedded starts miniredis, a Redis server inside the process, for the example apps and for tests on machines
// without Redis. Its clock runs, so that keys expire. The server is not meant for production, and does not work in
// 32-bit programs.
package embedded

import (
	"errors"
	"strconv"

	"github.com/alicebob/miniredis/v2"
)

// ErrBits is the error that Start returns in a 32-bit program. miniredis replies with an int, and the microseconds of an
// instant do not fit into 32 bits. A real Redis server also works with 32-bit programs.
var ErrBits = errors.New("the embedded Redis (miniredis) needs a 64-bit program; this one has 32 bits and needs a real Redis")

// Start starts an in-process Redis server on a free loopback port. The caller has to close it. In a 32-bit program,
// Start returns [ErrBits].
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
