// Package diagnose interprets the errors of calls to Redis: whether the server, the connection or the call
// is at fault, and what a person can do about it.
//
//	outcome.go  what an error says about its server, what kind of error it is, and the error of a timeout
//	hint.go     what a person can do about an error, and which servers cannot run the scripts
//
// The package takes errors of go-redis and replies of servers. It returns what they mean: a
// [health.Outcome], the kind of an error, or an error with a hint. It sends nothing and keeps no state.
package diagnose
