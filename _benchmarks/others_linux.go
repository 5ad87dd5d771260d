package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// A load is the CPU time that the whole machine and the processes of the benchmark have used up to an instant,
// in ticks.
type load struct{ machine, idle, own float64 }

// loadOf reads the load of the machine, and of this process and the processes with the given ids.
func loadOf(pids ...int) load {
	var l load
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	// user, nice, system, idle, iowait, irq, softirq, steal; the fields after these are already included.
	for i, field := range strings.Fields(first) {
		switch ticks, _ := strconv.ParseFloat(field, 64); i {
		case 1, 2, 3, 6, 7, 8: // includes interrupts, because the times of the processes include them
			l.machine += ticks
		case 4, 5:
			l.idle += ticks
		}
	}
	for _, pid := range append(pids, os.Getpid()) {
		l.own += ticksOf(pid)
	}
	return l
}

// ticksOf returns the CPU time that a process has used: the sum of utime and stime, the 12th and 13th fields
// after the name in parentheses.
func ticksOf(pid int) float64 {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return user + system
}

// others returns the share of CPU time that other processes and the hypervisor took since the earlier reading,
// in percent of the whole machine.
func (l load) others(earlier load) float64 {
	used, all := l.machine-earlier.machine, l.machine-earlier.machine+l.idle-earlier.idle
	if all <= 0 {
		return 0
	}
	return max(0, 100*(used-(l.own-earlier.own))/all)
}
