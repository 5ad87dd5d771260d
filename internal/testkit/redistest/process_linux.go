package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// paused reports whether a SIGSTOP has taken effect: state T, the field after the program's name in parentheses.
func paused(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // no /proc here: nothing to wait for
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("T"))
}
