// Package process starts the programs that tests run against, and ends them with the test.
package process

import (
	"os/exec"
	"runtime"
)

// A Process is a running command with a goroutine that waits for it, so that it never stays behind as a zombie.
type Process struct {
	Cmd  *exec.Cmd
	Done <-chan struct{} // closed when the process has ended; then Cmd.ProcessState says how
}

// Start starts cmd such that it dies with this test process, where the system can do that (Linux): cleanups do not run
// after a panic of another goroutine or a test timeout.
func Start(cmd *exec.Cmd) (*Process, error) {
	done := make(chan struct{})
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		defer close(done)
		// The parent whose death counts is the thread that forked (go.dev/issue/27505). This one cannot end while the
		// goroutine locked to it waits; and waiting would hold a thread in any case.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return &Process{Cmd: cmd, Done: done}, nil
}

// Kill ends the process and returns when it is gone.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // fails only if it has ended already
	<-p.Done
}
