package keyfunc

import (
	"net/http"
	"strings"
	"testing"
)

// nearProxy is the address of a proxy that is trusted.
const nearProxy = "10.0.0.1:4711"

// via returns a request from nearProxy with the lines of a header.
func via(header string, lines ...string) Request {
	return fakeRequest{remote: nearProxy, header: http.Header{header: lines}}
}

// FuzzXForwardedFor checks that the key depends only on what the proxies appended to the header, and not on what a client wrote
// into it.
func FuzzXForwardedFor(f *testing.F) {
	for _, s := range []string{"", "6.6.6.6", "10.9.9.9", "unknown", ",", ", ,", `"`, "[::1", "::1%eth0", strings.Repeat("10.1.1.1,", 70)} {
		f.Add(s)
	}
	trusting, hop := IP(TrustedProxies("10.0.0.0/8")), IP(TrustedHops(1))
	f.Fuzz(func(t *testing.T, forged string) {
		for name, r := range map[string]Request{
			"one line":     via("X-Forwarded-For", forged+", 203.0.113.9"),
			"two lines":    via("X-Forwarded-For", forged, "203.0.113.9"),
			"two proxies":  via("X-Forwarded-For", forged+",203.0.113.9,10.3.3.3"),
			"other header": fakeRequest{remote: nearProxy, header: http.Header{"Forwarded": {forged}, "X-Forwarded-For": {"203.0.113.9"}}},
		} {
			if key, err := trusting(r); err != nil || key != "ip:203.0.113.9" {
				t.Errorf("%s: got %q, %v; want ip:203.0.113.9", name, key, err)
			}
			if key, _ := hop(r); name != "two proxies" && key != "ip:203.0.113.9" {
				t.Errorf("%s, by hops: got %q, want ip:203.0.113.9", name, key)
			}
		}
		key, err := trusting(via("X-Forwarded-For", forged))
		if err != nil || !strings.HasPrefix(key, "ip:") || len(key) > 64 {
			t.Errorf("only the forged header %q: got %q, %v; want the key of an address", forged, key, err)
		}
	})
}

// FuzzForwarded checks the same for the header of RFC 7239, in which a client may leave a quote open.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{"", "for=6.6.6.6", `for="`, `for="\`, `for="\"`, `a="b,c`, `;;;`, `"`, `\`, `for="[::1]:80"`, "for=10.9.9.9"} {
		f.Add(s)
	}
	trusting := IP(Forwarded(), TrustedProxies("10.0.0.0/8"))
	f.Fuzz(func(t *testing.T, forged string) {
		for name, r := range map[string]Request{
			"one line":    via("Forwarded", forged+", for=203.0.113.9"),
			"two lines":   via("Forwarded", forged, `for="203.0.113.9:80";proto=https`),
			"two proxies": via("Forwarded", forged+`,for=203.0.113.9;by="a,b",for="10.3.3.3"`),
		} {
			if key, err := trusting(r); err != nil || key != "ip:203.0.113.9" {
				t.Errorf("%s: got %q, %v; want ip:203.0.113.9", name, key, err)
			}
		}
		key, err := trusting(via("Forwarded", forged))
		if err != nil || !strings.HasPrefix(key, "ip:") || len(key) > 64 {
			t.Errorf("only the forged header %q: got %q, %v; want the key of an address", forged, key, err)
		}
	})
}

// TestLongHeaders sends headers of 1 MiB: at most maxHops of their entries are read, with few allocations. If the time grew with the
// square of the length, the test would take hours.
func TestLongHeaders(t *testing.T) {
	const size = 1 << 20
	for name, part := range map[string]string{
		"trusted": "10.1.1.1, ", "commas": ",", "quotes": `"`, "escapes": `\`, "escaped": `\"`, "one": "x", "elements": "for=10.1.1.1,", "pairs": "for=1;",
	} {
		line := strings.Repeat(part, size/len(part))
		for header, f := range map[string]Func{
			"X-Forwarded-For": IP(TrustedProxies("10.0.0.0/8")), "Forwarded": IP(Forwarded(), TrustedProxies("10.0.0.0/8")),
			"X-Real-Ip": IP(TrustedHeader("X-Real-IP")),
		} {
			r := via(header, line)
			if key, err := f(r); err != nil || !strings.HasPrefix(key, "ip:10.") {
				t.Errorf("%s of %s: got %q, %v; want the key of a proxy", header, name, key, err)
			}
			if n := testing.AllocsPerRun(1, func() { _, _ = f(r) }); n > 200 {
				t.Errorf("%s of %s: %v allocations, want at most 200", header, name, n)
			}
		}
	}
}

// TestParseProxies checks the addresses that ParseProxies trusts, and that it returns an error where TrustedProxies panics.
func TestParseProxies(t *testing.T) {
	t.Parallel()
	option, err := ParseProxies("10.0.0.0/8", "192.0.2.1", "64:ff9b::198.51.100.1", "unix")
	if err != nil {
		t.Fatal(err)
	}
	f := IP(option)
	for remote, want := range map[string]string{
		"10.9.9.9:1": "ip:203.0.113.9", "192.0.2.1:1": "ip:203.0.113.9", "@": "ip:203.0.113.9", "192.0.2.2:1": "ip:192.0.2.2",
		"[64:ff9b::192.0.2.1]:1": "ip:203.0.113.9", "198.51.100.1:1": "ip:203.0.113.9", "[64:ff9b::198.51.100.1]:1": "ip:203.0.113.9",
		"[64:ff9b::10.9.9.9]:1": "ip:64:ff9b::/64",
	} {
		r := fakeRequest{remote: remote, header: http.Header{"X-Forwarded-For": {"203.0.113.9"}}}
		if key, err := f(r); err != nil || key != want {
			t.Errorf("from %s: got %q, %v; want %s", remote, key, err, want)
		}
	}
	for want, proxies := range map[string][]string{
		`keyfunc: ParseProxies(): want at least one`:                  nil,
		`keyfunc: ParseProxies("proxy.example.com"): want an address`: {"10.0.0.1", "proxy.example.com"},
	} {
		option, err := ParseProxies(proxies...)
		if option != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("ParseProxies(%q): got an option: %t, error %v; want none, and an error that begins with %s", proxies, option != nil, err, want)
		}
	}
}
