package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// ownClients has the tests that may make a Redis client themselves, and the reason. In a pattern, "*" stands for any part
// of the path's last element.
var ownClients = map[string]string{
	"*/example_*test.go":                            "users read it as documentation",
	"_benchmarks/*":                                 "measures clients as users make them",
	"_examples/*":                                   "shows users' code, in modules of their own",
	"core/*_test.go":                                "has no server that answers",
	"core/guard/*_test.go":                          "has no server that answers",
	"internal/redisstore/*_test.go":                 "has no server that answers, or tests the options",
	"internal/suite/outage/*_test.go":               "tests faults with the options that users have",
	"internal/suite/conformance/contention_test.go": "runs in a process without a test",
	"internal/suite/together/faults_test.go":        "runs in a process without a test",
	"internal/testkit/faultproxy/proxy.go":          "contains the call only in a comment",
	"internal/testkit/redisclient/client.go":        "makes the clients of all other tests",
	"internal/tools/docs/recipes/recipes_test.go":   "makes the client before any test runs",
}

var newClient = regexp.MustCompile(`\bredis\.New(Client|ClusterClient|Ring|FailoverClient|FailoverClusterClient|UniversalClient)\(`)

// TestClients checks that tests get their clients from package redisclient. With go-redis's default timeouts, tests fail
// when the machine is busy.
func TestClients(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for name, text := range files(t) {
		ofTests := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/suite/") || strings.HasPrefix(name, "internal/testkit/")
		if !ofTests || !newClient.MatchString(text) {
			continue
		}
		found := false
		for pattern := range ownClients {
			if matches(pattern, name) {
				found, used[pattern] = true, true
			}
		}
		if !found {
			t.Errorf("%s: got a Redis client made by the test, want one of package redisclient, which is patient on a busy machine", name)
		}
	}
	for pattern := range ownClients {
		if !used[pattern] {
			t.Errorf("%s: got no Redis client, want one, or no entry in ownClients", pattern)
		}
	}
}

// matches reports whether the file name matches the pattern. A pattern that ends with "/*" matches everything below a
// folder. Otherwise its last element is a pattern of path.Match.
func matches(pattern, name string) bool {
	folder, last := path.Split(pattern)
	if last == "*" {
		return strings.HasPrefix(name, folder)
	}
	ok, err := path.Match(last, path.Base(name))
	return err == nil && ok && (folder == "*/" || strings.HasPrefix(name, folder))
}
