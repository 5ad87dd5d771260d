package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// ownClients are the tests that make a client of Redis themselves, and why. "*" stands for any part of a path's last
// element.
var ownClients = map[string]string{
	"*/example_*test.go":                            "users read it as documentation",
	"_benchmarks/*":                                 "measures what users have",
	"_examples/*":                                   "a user's code, a module of its own",
	"core/*_test.go":                                "no server answers",
	"core/guard/*_test.go":                          "no server answers",
	"internal/redisstore/*_test.go":                 "no server answers, or the options are what is tested",
	"internal/suite/outage/*_test.go":               "in a fault, the options that users have count",
	"internal/suite/conformance/contention_test.go": "runs in a process without a test",
	"internal/suite/together/faults_test.go":        "runs in a process without a test",
	"internal/testkit/faultproxy/proxy.go":          "in a comment",
	"internal/testkit/redisclient/client.go":        "makes all others",
	"internal/tools/docs/recipes/recipes_test.go":   "is made before any test",
}

var newClient = regexp.MustCompile(`\bredis\.New(Client|ClusterClient|Ring|FailoverClient|FailoverClusterClient|UniversalClient)\(`)

// TestClients checks that tests take their clients from package redisclient: with go-redis's own timeouts they fail when
// the machine is busy.
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
			t.Errorf("%s makes a client of Redis itself: package redisclient makes one that waits on a busy machine", name)
		}
	}
	for pattern := range ownClients {
		if !used[pattern] {
			t.Errorf("%s makes no client of Redis, so it is no exception", pattern)
		}
	}
}

// matches reports whether the file name matches pattern: a folder with everything below it, or a file whose
// last element has the pattern of path.Match.
func matches(pattern, name string) bool {
	folder, last := path.Split(pattern)
	if last == "*" {
		return strings.HasPrefix(name, folder)
	}
	ok, err := path.Match(last, path.Base(name))
	return err == nil && ok && (folder == "*/" || strings.HasPrefix(name, folder))
}
