package check

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Round is one attempt at a test that cannot tell whether the library is wrong or the machine is too
// slow: one that waits for timeouts, say. It stands in for the testing.TB of the attempt. Its failures are
// kept until it is known how late the machine was, and its cleanups run when it ends.
type Round struct {
	testing.TB

	*record

	part string // of the round, in front of its failures
}

// A record is what the parts of a round share.
type record struct {
	ctx      context.Context // what Context returns
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// Part returns the round for a part of it: the failures of that begin with its name.
func (r *Round) Part(name string) *Round { return &Round{r.TB, r.record, r.part + name + ": "} }

// Rounds runs f until it passes. A round that fails is repeated, with the next of the timeouts, only if the
// machine was late meanwhile by more than a twentieth of the round's timeout: such a machine may well have
// caused the failure. Where it was not, or no timeout is left, the test fails with everything that the
// round found wrong.
func Rounds(tb testing.TB, timeouts []time.Duration, f func(r *Round, timeout time.Duration)) {
	tb.Helper()
	rounds(tb, timeouts, time.Hour, f)
}

// IdleRounds runs f, which holds the library to what it does where its process is not busy, until it passes: a round that
// fails is repeated if the machine was late by half a millisecond. Where it was late by more than tooLate, with which f cannot
// judge, in each of four rounds the test is skipped.
func IdleRounds(tb testing.TB, tooLate time.Duration, f func(r *Round)) {
	tb.Helper()
	rounds(tb, slices.Repeat([]time.Duration{10 * time.Millisecond}, 4), tooLate, func(r *Round, _ time.Duration) { f(r) })
}

// rounds is Rounds, and skips the test if it fails while the machine is never late by less than tooLate.
func rounds(tb testing.TB, timeouts []time.Duration, tooLate time.Duration, f func(r *Round, timeout time.Duration)) {
	tb.Helper()
	least := time.Duration(math.MaxInt64)
	for i, timeout := range timeouts {
		stop := measureLateness()
		failures := run(tb, func(r *Round) { f(r, timeout) })
		late := stop()
		least = min(least, late)
		if tb.Skipped() {
			tb.SkipNow()
		}
		if len(failures) == 0 {
			return
		}
		if late > timeout/20 && i+1 < len(timeouts) {
			tb.Logf("a round with a timeout of %v failed while the machine was %v late; the next has %v. The first failure: %s",
				timeout, late, timeouts[i+1], failures[0])
			continue
		}
		if least > tooLate {
			tb.Skipf("the machine was late by %v at least, in each of %d rounds: too busy to judge. The last failure: %s", least, i+1, failures[0])
		}
		for _, failure := range failures {
			tb.Error(failure)
		}
		tb.Logf("the machine was %v late at worst, the timeout is %v", late, timeout)
		if late > timeout/20 {
			tb.Logf("a machine that is so late may have caused the failure, so the code cannot be judged by it: run the test again while nothing else runs")
		}
		return
	}
}

// run makes one round, in a goroutine of its own because FailNow ends that.
func run(tb testing.TB, f func(r *Round)) []string {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	r := &Round{TB: tb, record: &record{ctx: ctx}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	cancel()
	r.cleanUp() // which may fail, too: the next round needs what it cleans up
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failures)
}

func (r *record) cleanUp() {
	for {
		r.mu.Lock()
		last := len(r.cleanups) - 1
		if last < 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.mu.Unlock()
		f()
	}
}

// Context returns a context that ends just before the cleanups of the round.
func (r *Round) Context() context.Context { return r.ctx }

// Cleanup registers a function that is called when the round ends.
func (r *Round) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Error notes a failure.
func (r *Round) Error(args ...any) { r.fail(fmt.Sprintln(args...)) }

// Errorf notes a failure.
func (r *Round) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }

// Fatal notes a failure and ends the calling goroutine.
func (r *Round) Fatal(args ...any) {
	r.fail(fmt.Sprintln(args...))
	runtime.Goexit()
}

// Fatalf notes a failure and ends the calling goroutine.
func (r *Round) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Fail notes a failure.
func (r *Round) Fail() { r.fail("Fail") }

// FailNow notes a failure and ends the calling goroutine.
func (r *Round) FailNow() {
	r.fail("FailNow")
	runtime.Goexit()
}

// Failed reports whether the round has failed so far.
func (r *Round) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// longest is where the message of a failure is cut off: the errors of thousands of calls say no more than the first.
const longest = 2000

// fail notes a failure with the lines that led to it: the caller of Errorf may be a helper.
func (r *Round) fail(message string) {
	pcs := make([]uintptr, 2)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var text strings.Builder
	text.WriteString(r.part)
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		fmt.Fprintf(&text, "%s:%d: ", filepath.Base(frame.File), frame.Line)
	}
	if len(message) > longest {
		message = fmt.Sprintf("%s ... (of %d bytes)", message[:longest], len(message))
	}
	text.WriteString(message)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text.String())
}
