// Package suite runs the suites that every adapter passes with Echo v5. It is apart from
// the adapter, so that users of that do not checksum what the suites import.
package suite
