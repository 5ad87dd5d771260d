package server

import (
	"os"
	"testing"
	"time"
)

// TestMain sets the process's start before that of the bubbles of synctest, whose clocks begin in
// the year 2000.
func TestMain(m *testing.M) {
	started = time.Date(1999, time.December, 31, 0, 0, 0, 0, time.UTC)
	os.Exit(m.Run())
}
