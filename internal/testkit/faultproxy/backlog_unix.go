//go:build unix

package faultproxy

import (
	"net"
	"syscall"
)

// shrink makes the backlog of l as small as it gets, and returns how many connections fill it: one more than asked for,
// on Linux. It asks for one, as zero makes the kernel log a SYN flood.
func shrink(l *net.TCPListener) int {
	const backlog = 1
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.Listen(int(fd), backlog) // of a socket that listens: only changes the number
		})
	}
	return backlog + 1
}
