// Package diagnose interprets the errors of calls to Redis: whether the server, the connection or the call
// is at fault, and what a person can do about it.
//
//	outcome.go  what an error says about its server, and what kind of error it is
//	hint.go     what a person can do about an error, and which servers cannot run the scripts
//
// The package takes errors of go-redis and replies of servers. It returns a [health.Outcome], or an error
// with a hint. It makes no calls and keeps no state.
package diagnose
