//go:build !unix

package redistest

import "syscall"

// On this system a process cannot be paused: sending these signals is an error, which Pause and Resume report.
const (
	sigStop = syscall.Signal(-1)
	sigCont = syscall.Signal(-1)
)

func paused(int) bool { return true }
