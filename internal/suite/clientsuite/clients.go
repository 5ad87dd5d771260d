package clientsuite

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// limiter returns a Limiter in memory that admits n requests a day.
func limiter(t *testing.T, n int64) *core.Limiter {
	t.Helper()
	lim, err := core.NewMemory("client", core.FixedWindow(core.PerDay(n)))
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// Table sends each request of the table through each adapter, and checks which key was charged.
func Table(t *testing.T, apps Apps) {
	t.Helper()
	rows := slices.Concat(addresses, proxied, proxies, single, forwarded, credentials)
	if len(rows) < 200 {
		t.Errorf("the table has %d rows, want at least 200", len(rows))
	}
	for name, newApp := range apps.Default {
		t.Run(name, func(t *testing.T) {
			for i, r := range rows {
				lim := limiter(t, 1)
				send := newApp.send(lim, r.f)
				r.want = strings.Replace(r.want, "method:GET", "method:"+cmp.Or(apps.Method, "GET"), 1)
				if status := send(Request{Peer: r.peer, Header: r.header}); status != 200 {
					t.Errorf("row %d, %+v: got status %d, want 200", i, r, status)
				}
				if res, err := lim.Peek(t.Context(), r.want); err != nil || res.Allowed {
					t.Errorf("row %d, peer %q, header %q: the key %q was not charged: it has %+v, %v; want it used up", i, r.peer, r.header, r.want, res, err)
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

// forgedHeaders sends a thousand requests from one peer, each with new values in every header that names a client: the
// limit of ten admits ten of them.
func forgedHeaders(t *testing.T, apps Apps) {
	names := []string{
		"X-Forwarded-For", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "Forwarded",
		"Fastly-Client-IP", "X-Cluster-Client-IP",
	}
	for _, peer := range []string{direct, proxy, "127.0.0.1:9", six} {
		for name, newApp := range apps.Default {
			passed := passedOf(1000, newApp.send(limiter(t, 10), keyfunc.IP()), func(i int) Request {
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

// methodsAndQuery sends a request with a method, a target and a query. All requests of the table are a GET of /a.
func methodsAndQuery(t *testing.T, apps Apps) {
	for name, newApp := range apps.Default {
		lim := limiter(t, 1)
		send := newApp.send(lim, keyfunc.Join(keyfunc.Method(), keyfunc.Route(), keyfunc.Query("key", keyfunc.Known(known))))
		if status := send(Request{Peer: direct, Method: "POST", Target: "/a?x=1&key=issued&key=2"}); status != 200 {
			t.Errorf("%s: got status %d, want 200", name, status)
		}
		want := "join:method:POST,route:/a,query:key:" + keyfunc.ForAPIKey("issued")[len("apikey:"):]
		if res, _ := lim.Peek(t.Context(), want); res.Allowed {
			t.Errorf("%s: the key %s was not charged", name, want)
		}
	}
}

// proxyWarning checks two warnings, each of which is logged once: about a proxy for which IP is not configured, and about
// requests without a credential that come through a proxy.
func proxyWarning(t *testing.T, apps Apps) {
	var out strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(old)
	const byIP, byPeer = "which IP() does not use", "guard.Fallback(keyfunc.IP(keyfunc.TrustedProxies("
	const notNamed, notSent = "that TrustedProxies does not name sent", "from which IP takes the client"
	here, elsewhere, edge := keyfunc.TrustedProxies("10.0.0.1", "unix"), keyfunc.TrustedProxies("10.244.0.0/16"), keyfunc.TrustedHeader("X-Real-IP")
	for header, value := range map[string]string{xff: "198.51.100.7", fwd: "for=198.51.100.7"} {
		only := func(sent, warning string) string { return map[bool]string{true: warning}[header == sent] }
		for name, newApp := range apps.Default {
			for i, c := range []struct {
				peer    string
				f       keyfunc.Func
				warning string
			}{
				{proxy, ip(), byIP},
				{"127.0.0.1:1", ip(), byIP},
				{socket, ip(), byIP},
				{direct, ip(), ""},
				{proxy, ip(here), only(fwd, notSent)},
				{proxy, ip(here, keyfunc.Forwarded()), only(xff, notSent)},
				{direct, ip(keyfunc.TrustedHops(1)), only(fwd, notSent)},
				{proxy, ip(elsewhere), notNamed},
				{direct, ip(elsewhere), notNamed},
				{proxy, ip(elsewhere, edge), notNamed},
				{proxy, ip(edge), notSent},
				{proxy, ip(here, edge), notSent},
				{proxy, keyed, byPeer},
				{socket, keyfunc.Join(keyed, ip(here)), byPeer},
				{direct, keyed, ""},
				{proxy, keyfunc.FirstOf(keyed, ip(here)), only(fwd, notSent)},
			} {
				out.Reset()
				send := newApp.send(limiter(t, 100), c.f)
				send(Request{Peer: c.peer})
				if out.Len() > 0 {
					t.Errorf("%s, case %d: without the header %q the log has %q, want no warning", name, i, header, out.String())
				}
				for range 5 {
					send(Request{Peer: c.peer, Header: []string{header + value}})
				}
				lines, want := strings.Count(out.String(), "\n"), min(1, len(c.warning))
				sent, _, _ := strings.Cut(header, ":")
				if lines != want || strings.Count(out.String(), c.warning) < want || strings.Count(out.String(), "sent "+sent) != want {
					t.Errorf("%s, case %d, from %s: got %d lines, want %d with %q: %s", name, i, c.peer, lines, want, c.warning, out.String())
				}
			}
		}
	}
}

// OverwrittenPeer checks the one warning about an outer middleware that has overwritten the peer's address with a value
// that a client sent. The warning must never advise to trust that address. Servers of fasthttp have no middlewares that can
// do this.
func OverwrittenPeer(t *testing.T, apps Apps) {
	t.Helper()
	var out strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(old)
	here, edge := keyfunc.TrustedProxies("10.0.0.1"), keyfunc.TrustedHeader("X-Real-IP")
	for name, newApp := range apps.Default {
		for i, c := range []struct {
			f     keyfunc.Func
			first string // the value that the first client sends as its address
			warn  bool
		}{
			{ip(), "6.6.6.6, 203.0.113.8", true}, {ip(here), "client.example:80", true}, {ip(here, edge), "6.6.6.6:", true},
			{keyed, "6.6.6.6", true},                                                     // the fallback key is the peer
			{ip(edge), "6.6.6.6", false}, {ip(keyfunc.TrustedHops(1)), "6.6.6.6", false}, // these options do not use the peer's address
		} {
			out.Reset()
			send := newApp.send(limiter(t, 100), c.f)
			for _, forged := range []string{c.first, "6.6.6.6", "2001:db8::6", "10.0.0.9", "10.0.0.1"} {
				send(Request{Peer: forged, Header: []string{xff + "6.6.6.6", "X-Real-IP: 6.6.6.6"}})
			}
			if n := strings.Count(out.String(), "RemoteAddr, is not an address with a port"); n != map[bool]int{true: 1}[c.warn] || strings.Count(out.String(), "\n") != n {
				t.Errorf("%s, case %d: got %d warnings, want one: %v: %s", name, i, n, c.warn, out.String())
			}
		}
	}
}

// doubtfulClient checks the one warning about options that count too many proxies or too few. Too few make a private
// address count as the client, although the client is behind that address.
func doubtfulClient(t *testing.T, apps Apps) {
	var out strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(old)
	const tooFew, private = "X-Forwarded-For with fewer addresses than TrustedHops", "X-Forwarded-For in which a private address is taken"
	const notAddress, notOne = "X-Forwarded-For with an entry that is not an address", "X-Real-IP, which is not one address"
	here, hops, forwarded, edge := keyfunc.TrustedProxies("10.0.0.1"), keyfunc.TrustedHops, keyfunc.Forwarded(), keyfunc.TrustedHeader("X-Real-IP")
	for name, newApp := range apps.Default {
		for i, c := range []struct {
			f       keyfunc.Func
			header  []string
			warning string
		}{
			{ip(hops(2)), []string{xff + "198.51.100.7"}, tooFew},
			{ip(hops(3)), []string{xff + "198.51.100.7", xff + "10.244.0.9"}, tooFew},
			{ip(hops(2), forwarded), []string{fwd + "for=198.51.100.7", xff + "198.51.100.7"}, strings.Replace(tooFew, "X-Forwarded-For", "Forwarded", 1)},
			{ip(hops(1)), []string{xff + "198.51.100.7, 10.244.0.9"}, private},
			{ip(hops(1)), []string{xff + "198.51.100.7", xff + "10.244.0.9"}, private},
			{ip(here), []string{xff + "198.51.100.7, 10.244.0.9, 10.0.0.1"}, private},
			{ip(here), []string{xff + "198.51.100.7", xff + "10.244.0.9"}, private},
			{ip(hops(1)), []string{xff + "10.244.0.9"}, ""}, // the client is in the same network
			{ip(here), []string{xff + "10.244.0.9, 10.0.0.1"}, ""},
			{ip(hops(2)), []string{xff + "198.51.100.7, 10.244.0.9"}, ""},
			{ip(hops(1)), []string{xff + "10.244.0.9, 198.51.100.7"}, ""}, // the client itself may have sent this
			{ip(here), []string{xff + "10.244.0.9, 198.51.100.7"}, ""},
			{ip(hops(2)), []string{xff + "unknown"}, notAddress},
			{ip(here), []string{xff + "198.51.100.7, unknown"}, notAddress},
			{ip(here), []string{xff + "unknown, 10.0.0.1"}, notAddress},
			{ip(here, forwarded), []string{fwd + "for=_hidden"}, strings.Replace(notAddress, "X-Forwarded-For", "Forwarded", 1)},
			{ip(here), []string{xff + "unknown, 198.51.100.7"}, ""}, // the client itself may have sent this
			{ip(hops(1)), []string{xff + "unknown, 198.51.100.7"}, ""},
			{ip(hops(1)), []string{xff + "unknown", xff + "198.51.100.7"}, ""},
			{ip(here, edge), []string{"X-Real-IP: unknown"}, notOne},
			{ip(edge), []string{"X-Real-IP: 198.51.100.7", "X-Real-IP: 198.51.100.8"}, notOne},
			{ip(edge), []string{"X-Real-IP: 198.51.100.7"}, ""},
		} {
			out.Reset()
			send := newApp.send(limiter(t, 100), c.f)
			for range 3 {
				send(Request{Peer: proxy, Header: c.header})
			}
			if lines, want := strings.Count(out.String(), "\n"), min(1, len(c.warning)); lines != want || strings.Count(out.String(), c.warning) < want {
				t.Errorf("%s, case %d: got %d lines, want %d with %q: %s", name, i, lines, want, c.warning, out.String())
			}
		}
	}
}
