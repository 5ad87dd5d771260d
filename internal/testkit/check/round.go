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

// A Round is one attempt at a test that may fail because the library is wrong or because the machine is too slow, for
// example a test that waits for timeouts. It is the testing.TB of the attempt. Its failures are kept until the lateness of
// the machine is known, and its cleanups run when the round ends.
type Round struct {
	testing.TB

	*record

	part string // the name of the part of the round, in front of its failures
}

// A record is shared by the parts of a round.
type record struct {
	ctx      context.Context // what Context returns
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// Part returns the round for one of its parts: the failures of the part begin with its name.
func (r *Round) Part(name string) *Round { return &Round{r.TB, r.record, r.part + name + ": "} }

// Rounds runs f until it passes. A failed round is repeated with the next timeout only if the machine was late meanwhile by
// more than a twentieth of the round's timeout, as such a machine may have caused the failure. If the machine was not late,
// or no timeout is left, the test fails with all failures of the round.
func Rounds(tb testing.TB, timeouts []time.Duration, f func(r *Round, timeout time.Duration)) {
	tb.Helper()
	rounds(tb, timeouts, time.Hour, f)
}

// IdleRounds runs f until it passes, up to four times. f tests behavior of the library that requires a process that is not
// busy. A failed round is repeated if the machine was late by half a millisecond. If the machine was late by more than
// tooLate in each round, f cannot judge, and the test is skipped.
func IdleRounds(tb testing.TB, tooLate time.Duration, f func(r *Round)) {
	tb.Helper()
	rounds(tb, slices.Repeat([]time.Duration{10 * time.Millisecond}, 4), tooLate, func(r *Round, _ time.Duration) { f(r) })
}

// rounds is Rounds, but skips a test that fails if the machine was late by more than tooLate in every round.
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
			tb.Skipf("the machine was late by at least %v in each of %d rounds: too busy to judge. The last failure: %s", least, i+1, failures[0])
		}
		for _, failure := range failures {
			tb.Error(failure)
		}
		tb.Logf("the machine was %v late at worst, the timeout is %v", late, timeout)
		if late > timeout/20 {
			tb.Logf("a machine this late may have caused the failure, so it says nothing about the code: run the test again while nothing else runs")
		}
		return
	}
}

// run makes one round, in a goroutine of its own, because FailNow ends its goroutine.
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
	r.cleanUp() // a cleanup may fail, too, and the next round needs the cleanups
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

// Error records a failure.
func (r *Round) Error(args ...any) { r.fail(fmt.Sprintln(args...)) }

// Errorf records a failure.
func (r *Round) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }

// Fatal records a failure and ends the calling goroutine.
func (r *Round) Fatal(args ...any) {
	r.fail(fmt.Sprintln(args...))
	runtime.Goexit()
}

// Fatalf records a failure and ends the calling goroutine.
func (r *Round) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

// Fail records a failure.
func (r *Round) Fail() { r.fail("Fail") }

// FailNow records a failure and ends the calling goroutine.
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

// longest is the length at which the message of a failure is cut off: the errors of thousands of calls say no more than the
// first.
const longest = 2000

// fail records a failure with the lines that led to it, because the caller of Errorf may be a helper.
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
