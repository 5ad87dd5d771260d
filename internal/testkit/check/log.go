package check

import (
	"strings"
	"sync"
)

// A Log collects the text that is written to it, by any goroutine.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// String returns everything that has been written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often part was written.
func (l *Log) Count(part string) int { return strings.Count(l.String(), part) }
