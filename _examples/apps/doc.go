// Package apps tests the example apps from outside, as their users find them: that the code of each
// compiles when it is copied, that its flags and the commands it prints work, that all web
// frameworks answer alike, that two processes share one limit, and that SIGTERM ends them.
//
// "go test ./_examples/apps" runs the tests. They need bash and curl, and redis-server for some.
// Tests of what an app does beyond this are in its own folder.
package apps
