// Package process starts the programs that tests run against, and ends them with the test.
package process

import (
	"os/exec"
	"runtime"
)

// A Process is a running command with a goroutine that waits for it, so that the process never remains as a zombie.
type Process struct {
	Cmd  *exec.Cmd
	Done <-chan struct{} // closed when the process has ended; Cmd.ProcessState is set then
}

// Start starts cmd so that it dies with this test process, if the system supports that (Linux): cleanups do not run after a
// panic of another goroutine or a test timeout.
func Start(cmd *exec.Cmd) (*Process, error) {
	done := make(chan struct{})
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		defer close(done)
		// The process dies with the thread that forked it (go.dev/issue/27505). This thread cannot end while the goroutine that
		// is locked to it waits. Waiting would take a thread in any case.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // cmd.ProcessState has the result
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return &Process{Cmd: cmd, Done: done}, nil
}

// Kill ends the process and returns when it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // fails only if it has ended already
	<-p.Done
}
