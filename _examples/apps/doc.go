// Package apps tests the example apps from outside, as their users find them: the code of each app
// must compile when it is copied, its flags and the commands that it prints must work, all web
// frameworks must answer alike, two processes must share one limit, and SIGTERM must end the apps.
//
// "go test ./_examples/apps" runs the tests. They need bash and curl, and some need redis-server.
// Other tests of an app are in the app's own folder.
package apps
