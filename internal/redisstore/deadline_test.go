package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadlines checks that a deadlineContext ends after the timeout, or up to 1/64 of it earlier, and
// never with the caller's context. Calls that begin at about the same time must share a timer.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 640 * time.Millisecond
		b := &deadlines{timeout: timeout}
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "caller's")
		began := time.Now()
		first := deadlineContext{ctx, b.timer()}
		time.Sleep(timeout / 64)
		second := deadlineContext{ctx, b.timer()}
		time.Sleep(time.Nanosecond)
		third := deadlineContext{ctx, b.timer()}
		for i, want := range []time.Duration{timeout, timeout, timeout + timeout/64 + 1} {
			c := []context.Context{first, second, third}[i]
			if deadline, ok := c.Deadline(); !ok || deadline.Sub(began) != want {
				t.Errorf("context %d ends after %v, want %v", i, deadline.Sub(began), want)
			}
			if c.Value(key{}) != "caller's" || c.Err() != nil {
				t.Errorf("context %d: value %v, %v", i, c.Value(key{}), c.Err())
			}
		}
		if first.Done() != second.Done() || first.Done() == third.Done() {
			t.Error("two that began together do not share a timer, or a later one does")
		}
		earlier, cancel := context.WithTimeout(ctx, timeout/2)
		cancel()
		if c := (deadlineContext{earlier, b.timer()}); c.Err() != nil || c.Value(key{}) != "caller's" {
			t.Errorf("a call ends with its caller: %v", c.Err())
		}
		<-first.Done()
		if took := time.Since(began); took != timeout || !errors.Is(first.Err(), context.DeadlineExceeded) || third.Err() != nil {
			t.Errorf("after %v: %v, and a later one: %v", took, first.Err(), third.Err())
		}
		<-third.Done()
		derived, cancel := context.WithCancel(third)
		defer cancel()
		<-derived.Done()
		if !errors.Is(derived.Err(), context.DeadlineExceeded) {
			t.Errorf("what was derived from it: %v", derived.Err())
		}
	})
}
