// Package suite runs the suites that every adapter passes with Fiber v3. It is apart from
// the adapter, so that users of that do not checksum what the suites import.
package suite
