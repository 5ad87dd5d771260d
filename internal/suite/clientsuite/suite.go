// Package clientsuite holds the key functions to one table of requests, through
// every adapter: whatever the framework, the same request has the same key.
package clientsuite

import "testing"

// Exercise runs every case through each of apps.
func Exercise(t *testing.T, apps Apps) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Apps)
	}{
		{"Table", Table},
		{"Forged", forgedHeaders},
		{"MethodsAndQuery", methodsAndQuery},
		{"ProxyWarning", proxyWarning},
		{"DoubtfulClient", doubtfulClient},
		{"TableOverConnections", everyRowOverConnections},
		{"RawRequests", rawRequests},
		{"TrailerEndsWithItsRequest", trailerEndsWithItsRequest},
		{"RealProxies", realProxies},
		{"Refused", refusedRequests},
		{"RefusedBehindProxies", refusedBehindProxies},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, apps) })
	}
}
