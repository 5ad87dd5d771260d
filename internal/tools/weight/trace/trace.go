// Package trace records which functions a program enters. Weight adds a call of [Enter] to each function of the library
// before it builds the program that runs a path.
package trace

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// An Entry records that a goroutine entered a function.
type Entry struct {
	Goroutine int64
	Function  int // the number that Enter was called with
}

var (
	recording atomic.Bool
	mutex     sync.Mutex
	entries   []Entry
)

// Enter records that the calling goroutine entered a function, if a recording is running.
func Enter(function int) {
	if !recording.Load() {
		return
	}
	e := Entry{Goroutine: goroutine(), Function: function}
	mutex.Lock()
	defer mutex.Unlock()
	entries = append(entries, e)
}

// Start begins a recording.
func Start() { recording.Store(true) }

// Stop ends the recording, and returns its entries in the order in which they happened.
func Stop() []Entry {
	recording.Store(false)
	mutex.Lock()
	defer mutex.Unlock()
	return entries
}

// goroutine returns the number of the calling goroutine. The runtime reveals it only in text such as
// "goroutine 7 [running]:".
func goroutine() int64 {
	var text [32]byte
	fields := bytes.Fields(text[:runtime.Stack(text[:], false)])
	number, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return number
}
