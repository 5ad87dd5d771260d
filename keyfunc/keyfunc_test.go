package keyfunc

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// fakeRequest is a Request whose values are written in a table.
type fakeRequest struct {
	remote string
	method string
	header http.Header
	values map[any]any
	route  string

	query, cookies string // the value of every query parameter, and of every cookie
}

func (f fakeRequest) Context() context.Context          { return context.Background() }
func (f fakeRequest) Method() string                    { return f.method }
func (f fakeRequest) Path() string                      { return "/" }
func (f fakeRequest) Route() string                     { return f.route }
func (f fakeRequest) RemoteAddr() string                { return f.remote }
func (f fakeRequest) Header(name string) string         { return f.header.Get(name) }
func (f fakeRequest) HeaderValues(name string) []string { return f.header.Values(name) }
func (f fakeRequest) Query(string) string               { return f.query }
func (f fakeRequest) Cookie(string) string              { return f.cookies }
func (f fakeRequest) Value(key any) any                 { return f.values[key] }
func (f fakeRequest) Unwrap() any                       { return nil }

// TestIPAllocatesOnlyTheKey checks that IP makes no allocation but the one of the key.
func TestIPAllocatesOnlyTheKey(t *testing.T) {
	f := IP()
	for _, remote := range []string{"192.0.2.1:4711", "[2001:db8:1:2:3:4:5:6]:4711"} {
		var r Request = fakeRequest{remote: remote}
		if n := testing.AllocsPerRun(100, func() { _, _ = f(r) }); n > 1 {
			t.Errorf("%s: IP makes %v allocations, want at most 1", remote, n)
		}
	}
}

type (
	userID   string
	userNum  uint32
	stringer struct{ id string }
)

func (s *stringer) String() string { return s.id }

// TestNoCredential checks that requests without a credential have no key: they must not share one.
func TestNoCredential(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Func{
		"APIKey": APIKey("X-API-Key"), "Bearer": Bearer(), "Cookie": Cookie("session"), "Query": Query("api_key"), "BasicAuth": BasicAuth(),
	} {
		if key, err := f(fakeRequest{}); key != "" || !errors.Is(err, ErrNoKey) {
			t.Errorf("%s: got %q, %v; want no key and ErrNoKey", name, key, err)
		}
	}
}

// TestSeveralHeaders checks credentials in several headers of one name, and unusual spellings that frameworks accept.
func TestSeveralHeaders(t *testing.T) {
	t.Parallel()
	known := Known(func(sent string) bool { return sent == "issued" })
	var many []string
	for range maxLines {
		many = append(many, "decoy")
	}
	for _, c := range []struct {
		name  string
		f     Func
		lines []string
		want  string // "": no key
	}{
		{"X-Api-Key", APIKey("X-API-Key"), []string{"a", "b"}, ForAPIKey("a")},
		{"X-Api-Key", APIKey("X-API-Key", known), []string{"decoy", "issued"}, ForAPIKey("issued")},
		{"X-Api-Key", APIKey("X-API-Key", known), append(many, "issued"), ""},
		{"Authorization", Bearer(known), []string{"Basic issued", "Bearer decoy", "bearer issued"}, ForBearer("issued")},
		{"Authorization", Bearer(), []string{"Basic YWxpY2U6eA==", "Bearer a"}, ForBearer("a")},
		{"Authorization", BasicAuth(), []string{"Bearer a", "basic YWxpY2U6eA=="}, ForBasicAuth("alice")},
		{"Authorization", BasicAuth(), []string{"Basic_YWxpY2U6eA=="}, ForBasicAuth("alice")},
		{"Authorization", BasicAuth(), []string{"Basic YWxpY2U6eA"}, ForBasicAuth("alice")},
		{"Authorization", BasicAuth(), []string{"Basic %", "Basic YWxpY2U6eA=="}, ""},
	} {
		key, err := c.f(fakeRequest{header: http.Header{c.name: c.lines}})
		if key != c.want || errors.Is(err, ErrNoKey) != (c.want == "") {
			t.Errorf("%s %q: got %q, %v; want %q", c.name, c.lines, key, err, c.want)
		}
	}
}

// TestUser checks the values from which User makes a key, and the errors for all others.
func TestUser(t *testing.T) {
	t.Parallel()
	var none *stringer
	for _, c := range []struct {
		value any
		want  string
		err   string // a part of the error; "": ErrNoKey if want is empty, too
	}{
		{"alice", "user:alice", ""},
		{userID("alice"), "user:alice", ""},
		{&stringer{"alice"}, "user:alice", ""},
		{42, "user:42", ""},
		{int64(-42), "user:-42", ""},
		{userNum(42), "user:42", ""},
		{"", "", ""},
		{&stringer{""}, "", ""},
		{none, "", ""},
		{nil, "", ""},
		{4.2, "", "the value is a float64, want a string, an integer or a fmt.Stringer: encoding/json makes a float64 of a number"},
		{[]byte("alice"), "", "[]uint8"},
		{struct{}{}, "", "struct {}"},
	} {
		key, err := User("user")(fakeRequest{values: map[any]any{"user": c.value}})
		switch {
		case key != c.want:
			t.Errorf("User of %#v: got %q, want %q", c.value, key, c.want)
		case c.err != "" && (err == nil || errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("User of %#v: got error %v, want one that contains %q", c.value, err, c.err)
		case c.err == "" && c.want == "" && !errors.Is(err, ErrNoKey):
			t.Errorf("User of %#v: got error %v, want ErrNoKey", c.value, err)
		}
	}
}

// TestNoRoute checks that a missing route is ErrNoKey, with advice where to mount the middleware.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	if key, err := Route()(fakeRequest{}); key != "" || !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "mount") {
		t.Errorf("got %q, %v; want ErrNoKey with advice to mount the middleware elsewhere", key, err)
	}
}

// constant returns a Func that returns key and err for every request.
func constant(key string, err error) Func { return func(Request) (string, error) { return key, err } }

// TestCompose checks FirstOf and Join.
func TestCompose(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	none, a, b, bad := constant("", ErrNoKey), constant("a", nil), constant("b,%", nil), constant("", broken)
	for i, c := range []struct {
		f    Func
		want string
		err  error
	}{
		{FirstOf(a, b), "a", nil},
		{FirstOf(none, b), "b,%", nil},
		{FirstOf(none, none), "", ErrNoKey},
		{FirstOf(none, bad, a), "", broken},
		{FirstOf(a, bad), "a", nil},
		{Join(a, b), "join:a,b%2C%25", nil},
		{Join(b, a), "join:b%2C%25,a", nil},
		{Join(constant(strings.Repeat("x", 64), nil), a), "join:" + strings.Repeat("x", 64) + ",a", nil},
		{Join(constant(strings.Repeat("x", 65), nil), a), "join:%~lTfF_fEgSC99WNJentWD9SwCtOME6oFNsWM61WWu1-k,a", nil},
		{Join(a, none), "", ErrNoKey},
		{Join(none, a), "", ErrNoKey},
		{Join(a, bad), "", broken},
	} {
		if key, err := c.f(fakeRequest{}); key != c.want || !errors.Is(err, c.err) {
			t.Errorf("case %d: got %q, %v; want %q, %v", i, key, err, c.want, c.err)
		}
	}
}

// TestNamesAreInKeys checks that the same value of two parameters, cookies or headers with different names makes different
// keys.
func TestNamesAreInKeys(t *testing.T) {
	t.Parallel()
	sent := fakeRequest{query: "7", cookies: "7", header: http.Header{"User": {"7"}, "Guest": {"7"}}}
	for kind, of := range map[string]func(name string) Func{
		"Query": func(name string) Func { return Query(name) }, "Cookie": func(name string) Func { return Cookie(name) }, "Header": Header,
	} {
		user, err := of("user")(sent)
		guest, err2 := of("guest")(sent)
		if err != nil || err2 != nil || user == guest {
			t.Errorf("%s: user 7 has the key %q, %v, and guest 7 %q, %v; want different keys", kind, user, err, guest, err2)
		}
	}
}

// FuzzJoin checks that different parts never give the same key.
func FuzzJoin(f *testing.F) {
	f.Add("a:b", "c", "a", "b:c")
	f.Add("a,b", "c", "a", "b,c")
	f.Add("a%2Cb", "c", "a,b", "c")
	f.Add("", "a", "a", "")
	f.Add("a\x00", "b", "a", "\x00b")
	f.Add(strings.Repeat("a,", 40), "c", strings.Repeat("a,", 40)+",", "c")
	f.Add(strings.Repeat("x", 65), "c", "%~lTfF_fEgSC99WNJentWD9SwCtOME6oFNsWM61WWu1-k", "c")
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		one, _ := Join(constant(a1, nil), constant(a2, nil))(fakeRequest{})
		other, _ := Join(constant(b1, nil), constant(b2, nil))(fakeRequest{})
		if (one == other) != (a1 == b1 && a2 == b2) {
			t.Errorf("Join(%q, %q) = %q and Join(%q, %q) = %q, want equal keys only for equal parts", a1, a2, one, b1, b2, other)
		}
		nested, _ := Join(Join(constant(a1, nil), constant(a2, nil)), constant(b1, nil))(fakeRequest{})
		flat, _ := Join(constant(a1, nil), constant(a2, nil), constant(b1, nil))(fakeRequest{})
		if nested == flat {
			t.Errorf("a nested Join and a flat one have the same key %q, want different ones", flat)
		}
	})
}

// TestPanics checks mistakes that a program makes when it starts: they must panic, because most of them would trust what
// clients send, or trust nothing.
func TestPanics(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(){
		`"0.0.0.0/0"): a range this wide trusts clients`: func() { TrustedProxies("0.0.0.0/0") },
		`"::/0"): a range this wide trusts clients`:      func() { TrustedProxies("::/0") },
		`"128.0.0.0/1"): a range this wide`:              func() { TrustedProxies("128.0.0.0/1") },
		`"::ffff:0.0.0.0/96"): a range this wide`:        func() { TrustedProxies("::ffff:0.0.0.0/96") },
		`TrustedProxies()`:                               func() { TrustedProxies() },
		`TrustedProxies("proxy.example.com")`:            func() { TrustedProxies("proxy.example.com") },
		`TrustedProxies("10.0.0.0/33")`:                  func() { TrustedProxies("10.0.0.0/8", "10.0.0.0/33") },
		`TrustedProxies("fe80::1%eth0")`:                 func() { TrustedProxies("fe80::1%eth0") },
		`TrustedHops(0)`:                                 func() { TrustedHops(0) },
		`TrustedHops(65)`:                                func() { TrustedHops(65) },
		`TrustedHeader("")`:                              func() { TrustedHeader("") },
		`TrustedHeader("X-Real IP")`:                     func() { TrustedHeader("X-Real IP") },
		`TrustedHeader("x-forwarded-for"): proxies append to this header what clients sent: use TrustedProxies or TrustedHops`: func() {
			TrustedHeader("x-forwarded-for")
		},
		`TrustedHeader("Forwarded"): proxies append to this header what clients sent: use Forwarded() with TrustedProxies`: func() {
			TrustedHeader("Forwarded")
		},
		`TrustedProxies("10.0.0.5/8"): the address is not the first of its range: want "10.0.0.5" for the one address, or "10.0.0.0/8"`: func() {
			TrustedProxies("10.0.0.5/8")
		},
		`TrustedProxies("64:ff9b::/96"): a range this`:  func() { TrustedProxies("64:ff9b::/96") },
		`IPv6Prefix(0): allowed is 1 to 128`:            func() { IPv6Prefix(0) },
		`IPv6Prefix(129)`:                               func() { IPv6Prefix(129) },
		`IPv4Prefix(33): allowed is 1 to 32`:            func() { IPv4Prefix(33) },
		`TrustedHops and TrustedHops: give it once`:     func() { IP(TrustedHops(1), TrustedHops(2)) },
		`TrustedHeader and TrustedHeader: give it once`: func() { IP(TrustedHeader("X-Real-IP"), TrustedHeader("CF-Connecting-IP")) },
		`IPv4Prefix and IPv4Prefix: give it once`:       func() { IP(IPv4Prefix(24), IPv4Prefix(16)) },
		`IPv6Prefix and IPv6Prefix: give it once`:       func() { ForIP(netip.IPv6Unspecified(), IPv6Prefix(64), IPv6Prefix(56)) },
		`Known and Known: give it once`: func() {
			Bearer(Known(func(string) bool { return true }), Known(func(string) bool { return false }))
		},
		`Secret and Secret: give it once`: func() { ForBearer("x", Secret("0123456789abcdef"), Secret("fedcba9876543210")) },
		`TrustedHops and TrustedProxies`:  func() { IP(TrustedHops(1), TrustedProxies("10.0.0.1")) },
		`TrustedHops and TrustedHeader`:   func() { IP(TrustedHops(1), TrustedHeader("X-Real-IP")) },
		`Forwarded and TrustedHeader`:     func() { IP(Forwarded(), TrustedHeader("X-Real-IP")) },
		`Forwarded needs`:                 func() { IP(Forwarded()) },
		`nil IPOption`:                    func() { IP(nil) },
		`Cookie("")`:                      func() { Cookie("") },
		`Query("")`:                       func() { Query("") },
		`Header("")`:                      func() { Header("") },
		`Secret: the key has 0 bytes`:     func() { Secret("") },
		`Secret: the key has 15 bytes`:    func() { Secret(make([]byte, 15)) },
		"APIKey":                          func() { APIKey("") },
		`APIKey("X API"): no header can have this name, because of the ' ': want one such as "X-API-Key"`: func() { APIKey("X API") },
		`Header("X-Ténant")`:              func() { Header("X-Ténant") },
		`Header("X-Tenant\n"): no header`: func() { Header("X-Tenant\n") },
		`Header("host"): net/http`:        func() { Header("host") },
		`Cookie("a;b"): no cookie`:        func() { Cookie("a;b") },
		`ForCookie("a;b"): no cookie`:     func() { ForCookie("a;b", "v") },
		`ForQuery("")`:                    func() { ForQuery("", "v") },
		`Header("X-Forwarded-For"): a client can write any address into it: use IP with TrustedProxies`:  func() { Header("x-forwarded-for") },
		`Header("Forwarded"): a client can write any address into it: use IP with TrustedProxies`:        func() { Header("Forwarded") },
		`Header("X-Real-Ip"): a client can write any address into it: use IP(TrustedHeader("X-Real-Ip")`: func() { Header("X-Real-IP") },
		`Header("True-Client-Ip"): a client`:      func() { Header("True-Client-IP") },
		`ForHeader("Cf-Connecting-Ip"): a client`: func() { ForHeader("CF-Connecting-IP", "192.0.2.1") },
		`Header("Fly-Client-Ip"): a client can write any address into it: use IP(TrustedHeader("Fly-Client-Ip")`:         func() { Header("Fly-Client-IP") },
		`Header("X-Api-Key"): it would be stored as it is, with its credential: use Bearer, BasicAuth, Cookie or APIKey`: func() { Header("X-API-Key") },
		`ForHeader("X-Auth-Token"): it would`:                                                                         func() { ForHeader("X-Auth-Token", "secret") },
		`Header("Authorization"): it would be stored as it is`:                                                        func() { Header("authorization") },
		`Header("Proxy-Authorization"): it would be stored`:                                                           func() { Header("Proxy-Authorization") },
		`Header("Cookie"): it would be stored as it is, with its credential: use Bearer, BasicAuth, Cookie or APIKey`: func() { Header("Cookie") },
		`ForHeader("X Tenant")`:                 func() { ForHeader("X Tenant", "acme") },
		`ForJoin()`:                             func() { ForJoin() },
		`ForIP: the zero Addr: check the error`: func() { ForIP(netip.Addr{}) },
		`without an address, such as those on a unix socket, is "peer:unix"`: func() { ForPeer(netip.Addr{}) },
		"CredentialOption": func() { APIKey("X-API-Key", nil) },
		"Known":            func() { Known(nil) },
		"User":             func() { User(nil) },
		"Join":             func() { Join() },
		"Func 2":           func() { Join(IP(), nil) },
		"FirstOf":          func() { FirstOf() },
		"Func 1":           func() { FirstOf(nil) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, want) || !strings.HasPrefix(got, "keyfunc: ") {
					t.Errorf("got the panic %q, want one that contains %q", got, want)
				}
			}()
			f()
		}()
	}
}
