package main

import "syscall"

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// sleep is accurate to about 60 µs. time.Sleep in an idle process rounds up to the
// next millisecond, which is as long as the latency that the proxy adds.
func sleep(ns int64) {
	t := syscall.NsecToTimespec(ns)
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early: the caller checks the clock again
}
