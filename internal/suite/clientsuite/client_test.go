package clientsuite

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

func limiter(t *testing.T, n int64) *core.Limiter {
	t.Helper()
	lim, err := core.NewMemory("client", core.FixedWindow(core.PerDay(n)))
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// TestTable sends each request of the table through each adapter, and looks at
// which bucket was charged.
func TestTable(t *testing.T) {
	rows := slices.Concat(addresses, proxied, proxies, single, forwarded, credentials)
	if len(rows) < 200 {
		t.Errorf("the table has %d rows, want at least 200", len(rows))
	}
	for name, adapter := range Adapters {
		t.Run(name, func(t *testing.T) {
			for i, r := range rows {
				lim := limiter(t, 1)
				send := adapter(t, lim, r.f)
				if status := send(Request{Peer: r.peer, Header: r.header}); status != 200 {
					t.Errorf("row %d: %+v: status %d", i, r, status)
				}
				if res, err := lim.Peek(t.Context(), r.want); err != nil || res.Allowed {
					t.Errorf("row %d: peer %q, header %q: the bucket %q was not charged: %+v, %v", i, r.peer, r.header, r.want, res, err)
				}
			}
		})
	}
}

// passedOf returns how many of n requests pass.
func passedOf(n int, send Send, request func(i int) Request) int {
	passed := 0
	for i := range n {
		if send(request(i)) == http.StatusOK {
			passed++
		}
	}
	return passed
}

// TestForged sends a thousand requests from one peer, each with new values in
// every header that names a client: the limit is ten, and ten pass.
func TestForged(t *testing.T) {
	names := []string{
		"X-Forwarded-For", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "Forwarded",
		"Fastly-Client-IP", "X-Cluster-Client-IP",
	}
	for _, peer := range []string{direct, proxy, "127.0.0.1:9", six} {
		for name, adapter := range Adapters {
			passed := passedOf(1000, adapter(t, limiter(t, 10), keyfunc.IP()), func(i int) Request {
				r := Request{Peer: peer}
				for j, header := range names {
					value := fmt.Sprintf("198.%d.%d.%d", j, i>>8, i&255)
					if header == "Forwarded" {
						value = "for=" + value
					}
					r.Header = append(r.Header, header+": "+value)
				}
				return r
			})
			if passed != 10 {
				t.Errorf("%s: %d of 1000 forged requests from %s passed, want 10", name, passed, peer)
			}
		}
	}
}

// TestInventedCredentials has a client invent a new credential with every
// request: with Known, or with an IP limiter in front, it gains nothing.
func TestInventedCredentials(t *testing.T) {
	no := keyfunc.Known(func(string) bool { return false })
	for what, f := range map[string]keyfunc.Func{
		"API key": keyfunc.APIKey("X-API-Key", no), "token": keyfunc.Bearer(no), "cookie": keyfunc.Cookie("session", no),
		"first of": keyfunc.FirstOf(keyfunc.APIKey("X-API-Key", no), keyfunc.Bearer(no), keyfunc.IP()),
	} {
		for name, adapter := range Adapters {
			passed := passedOf(200, adapter(t, limiter(t, 10), f), func(i int) Request {
				header := []string{fmt.Sprint("X-API-Key: ", i), fmt.Sprint("Authorization: Bearer ", i), fmt.Sprint("Cookie: session=", i)}
				return Request{Peer: direct, Header: header}
			})
			if passed != 10 {
				t.Errorf("%s: %d of 200 requests with an invented %s passed, want 10", name, passed, what)
			}
		}
	}
}

// TestNetworks has 65,536 addresses of one /64, which are one client.
func TestNetworks(t *testing.T) {
	lim := limiter(t, 70_000)
	for name, adapter := range Adapters {
		send := adapter(t, lim, keyfunc.IP())
		if err := lim.Reset(t.Context(), "ip:2001:db8:0:1::/64"); err != nil {
			t.Fatal(err)
		}
		for i := range 65_536 {
			send(Request{Peer: fmt.Sprintf("[2001:db8:0:1:%x:%x:0:%x]:80", i, i*7&0xffff, i)})
		}
		res, err := lim.Peek(t.Context(), keyfunc.ForIP(netip.MustParseAddr("2001:db8:0:1::")))
		if err != nil || res.Remaining != 70_000-65_536 {
			t.Errorf("%s: %+v, %v after 65,536 addresses of one /64", name, res, err)
		}
		send(Request{Peer: "[2001:db8:0:2::1]:80"})
		if res, _ := lim.Peek(t.Context(), "ip:2001:db8:0:2::/64"); res.Remaining == 70_000 {
			t.Errorf("%s: the next /64 is not its own", name)
		}
	}
}

// TestMethodsAndQuery has what a GET of /a, as in the table, does not have.
func TestMethodsAndQuery(t *testing.T) {
	for name, adapter := range Adapters {
		lim := limiter(t, 1)
		send := adapter(t, lim, keyfunc.Join(keyfunc.Method(), keyfunc.Route(), keyfunc.Query("key", keyfunc.Known(known))))
		if status := send(Request{Peer: direct, Method: "POST", Target: "/a?x=1&key=issued&key=2"}); status != 200 {
			t.Errorf("%s: status %d", name, status)
		}
		want := "join:method:POST,route:/a,query:" + keyfunc.ForAPIKey("issued")[len("apikey:"):]
		if res, _ := lim.Peek(t.Context(), want); res.Allowed {
			t.Errorf("%s: %s was not charged", name, want)
		}
	}
}

// TestProxyWarning looks for the one warning about a proxy that IP was not configured
// for, and the one about requests without a key that come through a proxy.
func TestProxyWarning(t *testing.T) {
	var out strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(old)
	const byIP, byPeer = "which IP() does not use", "guard.Fallback(keyfunc.IP(keyfunc.TrustedProxies("
	trusting := keyfunc.IP(keyfunc.TrustedProxies("10.0.0.1", "unix"))
	for header, value := range map[string]string{xff: "198.51.100.7", fwd: "for=198.51.100.7"} {
		for name, adapter := range Adapters {
			for i, c := range []struct {
				peer    string
				f       keyfunc.Func
				warning string
			}{
				{proxy, keyfunc.IP(), byIP},
				{"127.0.0.1:1", keyfunc.IP(), byIP},
				{socket, keyfunc.IP(), byIP},
				{direct, keyfunc.IP(), ""},
				{proxy, trusting, ""},
				{proxy, keyed, byPeer},
				{socket, keyfunc.Join(keyed, trusting), byPeer},
				{direct, keyed, ""},
				{proxy, keyfunc.FirstOf(keyed, trusting), ""},
			} {
				out.Reset()
				send := adapter(t, limiter(t, 100), c.f)
				send(Request{Peer: c.peer})
				if out.Len() > 0 {
					t.Errorf("%s %d: a warning without %s%s", name, i, header, out.String())
				}
				for range 5 {
					send(Request{Peer: c.peer, Header: []string{header + value}})
				}
				lines, want := strings.Count(out.String(), "\n"), min(1, len(c.warning))
				sent, _, _ := strings.Cut(header, ":")
				if lines != want || strings.Count(out.String(), c.warning) < want || strings.Count(out.String(), "sent "+sent) != want {
					t.Errorf("%s %d from %s: %d lines, want %d with %q: %s", name, i, c.peer, lines, want, c.warning, out.String())
				}
			}
		}
	}
}

// TestNoCredentialLeaks looks for the credential in every key that is made of it.
func TestNoCredentialLeaks(t *testing.T) {
	const secret = "sk_live_51H8xyzSECRET"
	header := []string{"X-API-Key: " + secret, "Authorization: Bearer " + secret, "Cookie: session=" + secret}
	for name, adapter := range Adapters {
		for _, f := range []keyfunc.Func{
			keyfunc.APIKey("X-API-Key"), keyfunc.Bearer(), keyfunc.Cookie("session"), keyfunc.Query("key"),
			keyfunc.APIKey("X-API-Key", keyfunc.Secret("pepper")),
		} {
			var key string
			spy := func(r keyfunc.Request) (string, error) {
				var err error
				key, err = f(r)
				return key, err
			}
			adapter(t, limiter(t, 1), spy)(Request{Peer: direct, Header: header, Target: "/a?key=" + secret})
			_, digest, _ := strings.Cut(key, ":")
			if len(digest) < 22 || strings.Contains(key, "sk_live") || strings.Contains(key, "SECRET") {
				t.Errorf("%s: key %q: want a digest of 128 bits or more", name, key)
			}
		}
	}
}
