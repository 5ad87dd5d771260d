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

// paused reports whether a SIGSTOP has taken effect: the state of the process, which follows the program's name in
// parentheses, is then T.
func paused(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // without /proc this cannot be checked
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("T"))
}
