package clientsuite

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// A way is how a proxy adds the client's address to a header that the client sent.
type way func(header, garbage, entry string) (lines []string)

var ways = []way{
	func(header, garbage, entry string) []string { return []string{header + garbage + ", " + entry} },
	func(header, garbage, entry string) []string { return []string{header + garbage + "," + entry} },
	func(header, garbage, entry string) []string { return []string{header + garbage, header + entry} },
	func(header, garbage, entry string) []string {
		return []string{header + garbage, strings.ToLower(header) + entry}
	},
}

// LeftOfProxy is a fuzz test. A client sends garbage in the header to which a proxy then adds the client's address. The
// address must become the key, in every configuration of every framework, over a connection of its own. A server may refuse
// text that is not a valid header.
func LeftOfProxy(f *testing.F, apps ...Apps) {
	for _, garbage := range []string{
		"", ",", ",,,", `"`, `\"`, `"\`, `for="`, `for="6.6.6.6`, `for=6.6.6.6;x="\\\"`, "6.6.6.6", "10.0.0.9", "10.0.0.9,", "unknown", "_hidden",
		`"6.6.6.6", "10.0.0.1`, "for=6.6.6.6;for=10.0.0.1", "\x00", "\xff\xfe", "6.6.6.6\r\nX-Forwarded-For: 6.6.6.7", " \t ", ":", "[::1]:80",
		"[::ffff:10.0.0.1", "6.6.6.6%eth0", "for=\"[2001:db8::6]:6\"", strings.Repeat(",", 300), strings.Repeat(`"\`, 200), strings.Repeat("10.0.0.9,", 70),
		`;for=6.6.6.6,;"`, `x="`, `for="6.6.6.6\", for=6.6.6.7`, "6.6.6.6;", "=,=", "for", "FOR=\"\"",
	} {
		f.Add(garbage)
	}
	servers := map[string]*Server{}
	last := "" // the key of the last request
	lim, err := core.NewMemory("fuzz", core.TokenBucket(core.PerSecond(1e9)))
	if err != nil {
		f.Fatal(err)
	}
	for _, apps := range apps {
		for name, newApp := range apps.all() {
			servers[name] = Serve(f, newApp, lim)
		}
	}
	options := []struct {
		key                 keyfunc.Func
		peer, header, entry string
	}{
		{ours, proxy, xff, "203.0.113.9"},
		{ours, proxy, xff, "203.0.113.9, 10.9.9.9"},
		{oneHop, proxy, xff, "203.0.113.9"},
		{twoHops, proxy, xff, "203.0.113.9, 10.9.9.9"},
		{standard, proxy, fwd, "for=203.0.113.9"},
		{standard, proxy, fwd, `for="203.0.113.9:80";by=10.0.0.1, for=10.9.9.9`},
		{hopsStd, proxy, fwd, "for=203.0.113.9, for=10.9.9.9"},
		{plain, direct, xff, "6.6.6.6"}, // this option trusts no proxy
	}
	f.Fuzz(func(t *testing.T, garbage string) {
		// A proxy never passes on a header with a line end, or one that is longer than a server's buffer.
		garbage = strings.NewReplacer("\r", " ", "\n", " ").Replace(garbage[:min(len(garbage), 2000)])
		for name, s := range servers {
			conns := map[string]*Conn{}
			for i, option := range options {
				s.use(func(r keyfunc.Request) (string, error) {
					key, err := option.key(r)
					last = key
					return key, err
				})
				const want = "ip:203.0.113.9"
				for j, write := range ways {
					if conns[option.peer] == nil {
						conns[option.peer] = s.Dial(option.peer)
					}
					last = ""
					status := conns[option.peer].Send(plainRequest("GET /a", write(option.header, garbage, option.entry)...))
					what := fmt.Sprintf("%s, option %d, way %d, %q", name, i, j, garbage)
					switch {
					case status == http.StatusOK && last == want:
						continue
					case status != 0 && status != http.StatusBadRequest || last != "":
						t.Errorf("%s: got status %d and key %q, want 200 and %q", what, status, last, want)
					case printable(garbage):
						t.Errorf("%s: got status %d, want 200: the header is valid", what, status)
					}
					conns[option.peer].Close()
					conns[option.peer] = nil
				}
			}
			for _, conn := range conns {
				if conn != nil {
					conn.Close()
				}
			}
		}
	})
}

// printable reports whether garbage may be the value of a header by RFC 9110, section 5.5.
func printable(garbage string) bool {
	for _, c := range []byte(garbage) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
