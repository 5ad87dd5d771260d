// Package embedded starts miniredis, a Redis inside the process, for the example apps
// and for tests on machines without Redis. Its clock runs, so that keys expire. It is
// not for production.
package embedded

import "github.com/alicebob/miniredis/v2"

// Start starts an in-process Redis on a free loopback port. The caller closes it.
func Start() (*miniredis.Miniredis, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		return nil, err
	}
	return m, nil
}
