package apps

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestRedisURLs starts the app with each form of -redis, and checks that the key of a request is then in that Redis.
func TestRedisURLs(t *testing.T) {
	group := redistest.Sentinel(t)
	single, cluster := redistest.Server(t), redistest.Cluster(t)
	for url, keys := range map[string]func() int64{
		"redis://" + single.Addr:                                   countKeys(t, single.Client(t)),
		"redis://" + group.Addrs[0] + "?master_name=" + group.Name: countKeys(t, group.Client(t)),
		"redis://" + cluster[0] + "?addr=" + cluster[1]:            countKeys(t, redistest.ClusterClient(t, cluster)),
	} {
		p := start(t, webApps[0], "-redis", url)
		if got := p.get(t, "/", "", ""); got.status != http.StatusOK {
			t.Errorf("%s: got the answer %+v, want status 200", url, got)
		}
		if n := keys(); n != 1 {
			t.Errorf("%s: this Redis has %d keys, want 1", url, n)
		}
		p.stop(t)
	}
}

// countKeys returns a function that counts the keys of a Redis.
func countKeys(t *testing.T, client redis.Cmdable) func() int64 {
	t.Helper()
	return func() int64 {
		n, err := client.DBSize(t.Context()).Result()
		check.Need(t, err)
		return n
	}
}

// TestOutgoing runs the app whose two processes call an API that denies the first call. The API must
// deny no call after that.
func TestOutgoing(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "go", "run", "../outgoing").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, line := range []string{
		"the first call: status 429", "process 1: 15 of 15", "process 2: 15 of 15",
		"the partner: 30 calls served, 1 denied, and 0 after that one",
	} {
		if !strings.Contains(string(output), line) {
			t.Errorf("got the output %s, want %q in it", output, line)
		}
	}
}
