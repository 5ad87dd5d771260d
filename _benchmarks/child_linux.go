package main

import "syscall"

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// sleep is accurate to about 60 µs. In an idle process, time.Sleep rounds up to the next millisecond, which is
// as long as the latency that the proxy adds.
func sleep(ns int64) {
	t := syscall.NsecToTimespec(ns)
	_ = syscall.Nanosleep(&t, nil) // a signal can end the sleep early, so the caller checks the clock again
}
