// Package diagnose says what the error of a call to Redis means: whose fault it is, and what a person can
// do about it.
//
//	outcome.go  what an error says about its server, and what kind of error it is
//	hint.go     what a person can do about an error; servers that cannot run the scripts
//
// What it is given: errors of go-redis and replies of servers. What it gives: a [health.Outcome], and
// errors with a hint. It makes no calls and keeps no state.
package diagnose
