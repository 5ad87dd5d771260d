//go:build unix && !linux

package redistest

import "syscall"

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

func paused(int) bool { return true }
