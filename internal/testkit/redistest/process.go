package redistest

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	requireEnv = "REDISLIMIT_REQUIRE_REDIS"
	serverEnv  = "REDISLIMIT_REDIS_SERVER"
)

// serverBinary returns the path of the server for tests: the program that REDISLIMIT_REDIS_SERVER names, or else the
// redis-server in PATH. If a named program cannot be run, the test fails, even if Redis is not required: another version
// would hide that the named one was not tested.
func serverBinary(tb testing.TB) string {
	tb.Helper()
	if os.Getenv(addrEnv) != "" {
		skipRunning(tb)
	}
	name := os.Getenv(serverEnv)
	if name == "" {
		return binary(tb, "redis-server")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("redistest: %s must name a Redis server that can be run, by its absolute path or in PATH: %v", serverEnv, err)
	}
	return path
}

var majorVersions sync.Map // by the path of the server, which does not change during a test

// MajorVersion returns the first number of the version of the servers that tests start. For Valkey 8 it is 8.
func MajorVersion(tb testing.TB) int {
	tb.Helper()
	return majorVersion(tb, serverBinary(tb))
}

// majorVersion returns 7 for "Redis server v=7.0.15 ...". Valkey numbers its versions from Redis 7.2 on.
func majorVersion(tb testing.TB, server string) int {
	tb.Helper()
	if known, ok := majorVersions.Load(server); ok {
		return known.(int)
	}
	out, err := exec.Command(server, "--version").Output()
	_, rest, _ := strings.Cut(string(out), " v=")
	number, _, _ := strings.Cut(rest, ".")
	major, badNumber := strconv.Atoi(number)
	if err != nil || badNumber != nil {
		tb.Fatalf("redistest: %s --version printed no version: %q, %v", server, out, err)
	}
	majorVersions.Store(server, major)
	return major
}

// binary returns the path of a program, or ends the test.
func binary(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(tb, name+" is not in PATH")
	}
	return path
}

// missing skips a test for which this machine lacks something, or fails it if Redis is required.
func missing(tb testing.TB, what string) {
	tb.Helper()
	if os.Getenv(requireEnv) == "1" {
		tb.Fatalf("redistest: %s, and %s=1 requires it", what, requireEnv)
	}
	tb.Skipf("needs a real Redis, and %s (%s=1 makes this a failure)", what, requireEnv)
}
