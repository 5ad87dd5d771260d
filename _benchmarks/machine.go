package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A machine describes the machine and the software that the figures were measured with.
type machine struct {
	Date    string            `json:"date"`
	CPU     string            `json:"cpu"`
	Cores   int               `json:"cores"`
	System  string            `json:"system"`
	Go      string            `json:"go"`
	Redis   string            `json:"redis"`
	Modules map[string]string `json:"modules"`
}

func thisMachine(s *server) machine {
	m := machine{
		Date: time.Now().UTC().Format(time.DateOnly), CPU: processor(), Cores: runtime.NumCPU(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Redis: s.version, Modules: map[string]string{},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			m.Modules[d.Path] = d.Version
		}
	}
	return m
}

// processor returns the name of the CPU, if the system reports it.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

func (m machine) write(w io.Writer, o *options) {
	_, _ = fmt.Fprintf(w, "%s: %d cores of %s, %s, %s, Redis %s, go-redis %s.\n", m.Date, m.Cores, m.CPU, m.System, m.Go, m.Redis,
		m.Modules["github.com/redis/go-redis/v9"])
	_, _ = fmt.Fprintf(w, "Medians of %d rounds of %v. In parentheses: the ratio to %s, and to the best peer, in the same round.\n",
		o.rounds, o.slice, incr)
}
