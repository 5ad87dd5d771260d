package batch

import (
	"fmt"
	"runtime/debug"
)

// A HookError is the error of a call during which a hook of the client panicked or ended its goroutine by
// [runtime.Goexit]. It says nothing about the server, and the call may have been carried out.
type HookError struct {
	Stack []byte // the stack of the panic; nil if the hook ended its goroutine
	value any    // the value of the panic
}

func (e *HookError) Error() string {
	if e.Stack == nil {
		return "a hook of the client ended its goroutine"
	}
	return fmt.Sprintf("a hook of the client panicked: %v", e.value)
}

// Catch calls f and returns its error. If f panics, Catch returns a HookError. Without Catch, a panic in
// a goroutine that this module started would end the process, because nobody else recovers there. If f ends
// its goroutine by [runtime.Goexit], Catch does not return; see [CatchAll].
func Catch(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &HookError{Stack: debug.Stack(), value: value}
		}
	}()
	return f()
}

// CatchAll calls f, and then calls ended with the error of f. If f panics or ends its goroutine, ended
// receives a HookError.
func CatchAll(f func() error, ended func(error)) {
	var err error = &HookError{}
	defer func() { ended(err) }()
	err = Catch(f)
}
