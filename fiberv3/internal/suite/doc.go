// Package suite runs the suites that every adapter passes with Fiber v3. It is separate from the adapter,
// so that users of the adapter need not download what the suites import.
package suite
