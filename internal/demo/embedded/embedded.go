// Package embedded starts miniredis, a Redis inside the process, for the example apps
// and for tests on machines without Redis. Its clock runs, so that keys expire. It is
// not for production.
package embedded

import (
	"errors"
	"strconv"

	"github.com/alicebob/miniredis/v2"
)

// Start starts an in-process Redis on a free loopback port. The caller closes it.
// In a 32-bit program it fails: there miniredis cuts the instants of scripts to 32 bits.
func Start() (*miniredis.Miniredis, error) {
	if strconv.IntSize == 32 {
		return nil, errors.New("miniredis cuts times to 32 bits in a 32-bit program: use a real Redis")
	}
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return nil, err
	}
	return m, nil
}
