package health

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestProcessBusy checks that processBusy notices when more goroutines can run than there are
// processors.
func TestProcessBusy(t *testing.T) {
	var end atomic.Bool
	defer end.Store(true)
	for range 4 * runtime.GOMAXPROCS(0) {
		go func() {
			for !end.Load() {
				_ = end.Load() // keeps the processor busy
			}
		}()
	}
	for begun := time.Now(); !processBusy(); {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the process is not busy")
		}
	}
}
