package conformance_test

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// sizedKey is a user's key of 20 bytes, as in docs/operating.md.
const sizedKey = "user:0123456789abcde"

// TestMemoryUsage compares the bytes that a key takes in Redis with the table of docs/operating.md, for every registered
// algorithm. On the version of Redis that the document names, both must be equal. Another version of Redis or of its
// allocator, jemalloc, may take one size class of jemalloc more. It may also take less, as Valkey does.
func TestMemoryUsage(t *testing.T) {
	client := redistest.Server(t).Client(t)
	documented, version := documentedSizes(t)
	info := client.InfoMap(t.Context()) // all sections, because INFO accepts only one name before Redis 7.0
	check.Need(t, info.Err())
	allocator := strings.Replace(info.Item("Memory", "mem_allocator"), "-", " ", 1)
	running := "Redis " + info.Item("Server", "redis_version") + " (" + allocator + ")"
	exact := running == version
	if !exact {
		t.Logf("This is %s, and the document is about %s: a key may take less, or one size class more.", running, version)
	}
	above := limits.Constructor(algorithm.TokenBucket) // the algorithm before, which has a row
	for _, v := range append(limits.All(), limits.Slots()...) {
		t.Run(v.Name, func(t *testing.T) {
			name := limits.Constructor(v.Kind)
			got := sizes(t, client, v.Limit(core.PerMinute(1000)))
			t.Logf("a key takes %v bytes after 1, 100 and 1000 units", got)
			want, ok := documented[name]
			if !ok {
				row := fmt.Sprintf("| %s | %d | %d | %d |", name, got[0], got[1], got[2])
				if !conformance.AddRow(t, "docs/operating.md", above, row) {
					t.Errorf("docs/operating.md does not say how many bytes a key of %s takes; add this row, or run the test with REDISLIMIT_ADD_ROWS=1: %s", name, row)
				}
				return
			}
			above = name
			for i, size := range want {
				if !size.holds(got[i], exact) {
					t.Errorf("a key takes %d bytes, want %+v as in docs/operating.md", got[i], size)
				}
			}
		})
	}
	// A bucket has its longest state if its rate is a fraction with a large denominator.
	for _, k := range algorithm.Kinds {
		if !k.Debt {
			continue
		}
		v := limits.Variant{Kind: k}
		limit := v.With(core.Per(999_999_937, 400*24*time.Hour), limits.Settings{Burst: 1_000_000})
		if got := sizes(t, client, limit); got[2] > 152 {
			t.Errorf("%v: a key takes %v bytes, want at most 152", limit, got)
		}
	}
}

// A size is a number of bytes in the table. The document says "about" for sorted sets, whose size varies because their
// entries have random levels.
type size struct {
	bytes int64
	about bool
}

// holds reports whether bytes equals s, within the tolerance for another version of Redis unless exact.
func (s size) holds(bytes int64, exact bool) bool {
	allowed := int64(0)
	if !exact {
		allowed = sizeClass(s.bytes)
	}
	if s.about {
		allowed += s.bytes / 50
	}
	return bytes-s.bytes <= allowed && (!exact || s.bytes-bytes <= allowed)
}

// documentedSizes returns the documented bytes after 1, 100 and 1000 units by algorithm, and the version of Redis on which
// they were measured.
func documentedSizes(t *testing.T) (map[string][3]size, string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operating.md"))
	check.Need(t, err)
	_, section, _ := strings.Cut(string(text), "\n## How much memory a key takes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	version := regexp.MustCompile(`Redis \S+ \(jemalloc \S+\)`).FindString(section)
	documented := map[string][3]size{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+(?:, \w+)*) \| ((?:about )?[\d,]+) \| ((?:about )?[\d,]+) \| ((?:about )?[\d,]+) \|$`).FindAllStringSubmatch(section, -1) {
		var sizes [3]size
		for i, text := range row[2:] {
			digits, about := strings.CutPrefix(text, "about ")
			bytes, err := strconv.ParseInt(strings.ReplaceAll(digits, ",", ""), 10, 64)
			check.Need(t, err)
			sizes[i] = size{bytes, about}
		}
		for name := range strings.SplitSeq(row[1], ", ") {
			documented[name] = sizes
		}
	}
	if version == "" || len(documented) == 0 {
		t.Fatal("docs/operating.md has no table of the memory that a key takes, or does not name the version of Redis")
	}
	return documented, version
}

// sizes returns how many bytes a key takes after 1, 100 and 1000 units.
func sizes(t *testing.T, client *redis.Client, limit core.Limit) (bytes [3]int64) {
	t.Helper()
	ctx := context.Background()
	lim := core.MustNew(client, "api", limit, core.FailClosed(), core.Timeout(time.Minute))
	used := 0
	for i, units := range []int{1, 100, 1000} {
		for ; used < units; used++ {
			if _, err := lim.Acquire(ctx, sizedKey, 1); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if bytes[i], err = client.MemoryUsage(ctx, "rl:api:{"+sizedKey+"}:"+limits.Key(limit), 0).Result(); err != nil {
			t.Fatal(err)
		}
	}
	check.Need(t, client.FlushAll(ctx).Err())
	return bytes
}

// sizeClass returns the distance between jemalloc's size classes at n bytes: 16 bytes up to 128, and then a quarter of the
// power of two below n.
func sizeClass(n int64) int64 {
	return max(16, int64(1)<<(bits.Len64(uint64(n-1))-1)/4)
}
