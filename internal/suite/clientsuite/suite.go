// Package clientsuite checks the key functions with one table of requests, through every adapter: whatever the framework
// is, the same request must have the same key.
package clientsuite

import "testing"

// Exercise runs every case with each of apps, except for cases that need an ability that the framework lacks.
func Exercise(t *testing.T, apps Apps) {
	for _, c := range []struct {
		name  string
		run   func(*testing.T, Apps)
		needs Ability
	}{
		{"Table", Table, ""},
		{"Forged", forgedHeaders, ""},
		{"MethodsAndQuery", methodsAndQuery, HTTP1},
		{"ProxyWarning", proxyWarning, ""},
		{"DoubtfulClient", doubtfulClient, ""},
		{"TableOverConnections", everyRowOverConnections, HTTP1},
		{"RawRequests", rawRequests, HTTP1},
		{"TrailerEndsWithItsRequest", trailerEndsWithItsRequest, HTTP1},
		{"RealProxies", realProxies, HTTP1},
		{"Refused", refusedRequests, HTTP1},
		{"RefusedBehindProxies", refusedBehindProxies, HTTP1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if reason := apps.Lacks[c.needs]; reason != "" {
				t.Skip(reason)
			}
			c.run(t, apps)
		})
	}
}
