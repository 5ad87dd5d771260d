package main

import (
	"net/http"
	"slices"
)

// An answer is a response that is kept in memory. The simulated traffic gets such responses: its requests
// do not use the network.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, p...)
	return len(p), nil
}

// lines returns the header lines as they are sent over a network, sorted by name.
func (a *answer) lines() []string {
	var lines []string
	for name, values := range a.header {
		for _, value := range values {
			lines = append(lines, name+": "+value)
		}
	}
	slices.Sort(lines)
	return lines
}
