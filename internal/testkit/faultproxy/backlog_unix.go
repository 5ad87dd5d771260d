//go:build unix

package faultproxy

import (
	"net"
	"syscall"
)

// shrink makes the backlog of l as small as possible, and returns how many connections fill it: on Linux, one more than its
// size. The size is one, because with zero the kernel logs a SYN flood.
func shrink(l *net.TCPListener) int {
	const backlog = 1
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.Listen(int(fd), backlog) // on a socket that listens already, this only changes the size
		})
	}
	return backlog + 1
}
