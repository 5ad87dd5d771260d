package keyfunc

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// fakeRequest is a request as a table writes it.
type fakeRequest struct {
	remote string
	method string
	header http.Header
	values map[any]any
	route  string

	query, cookies string // the value of each of them
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

func TestIP(t *testing.T) {
	t.Parallel()
	forged := http.Header{"X-Forwarded-For": {"6.6.6.6"}, "X-Real-Ip": {"6.6.6.6"}, "Forwarded": {"for=6.6.6.6"}}
	for remote, want := range map[string]string{
		"192.0.2.1:4711":              "192.0.2.1",
		"192.0.2.1":                   "192.0.2.1",
		"[::ffff:192.0.2.1]:4711":     "192.0.2.1",
		"[::ffff:c000:201]:80":        "192.0.2.1",
		"[64:ff9b::192.0.2.1]:80":     "192.0.2.1",
		"[64:ff9b::c000:201%eth0]:80": "192.0.2.1",
		"[64:ff9b::10.0.0.1]:80":      "64:ff9b::/64", // no private address is behind NAT64
		"[64:ff9b::127.0.0.1]:80":     "64:ff9b::/64",
		"[64:ff9b:1::c000:201]:80":    "64:ff9b:1::/64",
		"[64:ff9b::1:c000:201]:80":    "64:ff9b::/64",
		"[2001:db8:1:2:3:4:5:6]:4711": "2001:db8:1:2::/64",
		"[2001:db8:1:2::ffff]:1":      "2001:db8:1:2::/64",
		"2001:db8:1:3::1":             "2001:db8:1:3::/64",
		"[fe80::1%eth0]:4711":         "fe80::/64",
		"[fe80::1%eth1]:4711":         "fe80::/64",
		"[::1]:4711":                  "::/64",
		"":                            "unix",
		"@":                           "unix",
		"/run/app.sock":               "unix",
		"192.0.2.1:port":              "unix",
	} {
		r := fakeRequest{remote: remote, header: forged}
		if key, err := IP()(r); err != nil || key != "ip:"+want {
			t.Errorf("IP of %q = %q, %v; want ip:%s", remote, key, err, want)
		}
		if key, err := Peer()(r); err != nil || key != "peer:"+want {
			t.Errorf("Peer of %q = %q, %v; want peer:%s", remote, key, err, want)
		}
	}
}

func TestIPAllocatesOnlyTheKey(t *testing.T) {
	f := IP()
	for _, remote := range []string{"192.0.2.1:4711", "[2001:db8:1:2:3:4:5:6]:4711"} {
		var r Request = fakeRequest{remote: remote}
		if n := testing.AllocsPerRun(100, func() { _, _ = f(r) }); n > 1 {
			t.Errorf("%s: %v allocations, want at most 1", remote, n)
		}
	}
}

type (
	userID   string
	userNum  uint32
	stringer struct{ id string }
)

func (s *stringer) String() string { return s.id }

func TestUser(t *testing.T) {
	t.Parallel()
	var none *stringer
	for _, c := range []struct {
		value any
		want  string
		err   string // "" for ErrNoKey
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
		{4.2, "", "float64"},
		{[]byte("alice"), "", "[]uint8"},
		{struct{}{}, "", "struct {}"},
	} {
		key, err := User("user")(fakeRequest{values: map[any]any{"user": c.value}})
		switch {
		case key != c.want:
			t.Errorf("User of %#v = %q, want %q", c.value, key, c.want)
		case c.err != "" && (err == nil || errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("User of %#v: %v, want an error with %q", c.value, err, c.err)
		case c.err == "" && c.want == "" && !errors.Is(err, ErrNoKey):
			t.Errorf("User of %#v: %v, want ErrNoKey", c.value, err)
		}
	}
}

func TestRoute(t *testing.T) {
	t.Parallel()
	if key, err := Route()(fakeRequest{route: "/users/{id}"}); key != "route:/users/{id}" || err != nil {
		t.Errorf("%q, %v", key, err)
	}
	if key, err := Route()(fakeRequest{}); key != "" || !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), "mount") {
		t.Errorf("no route: %q, %v; want ErrNoKey with advice", key, err)
	}
}

func TestAPIKey(t *testing.T) {
	t.Parallel()
	const secret = "sk_live_0123456789"
	request := func(key string) Request { return fakeRequest{header: http.Header{"X-Api-Key": {key}}} }
	invented, issued := APIKey("X-API-Key"), APIKey("x-api-key", Known(func(s string) bool { return s == secret }))
	one, err := invented(request(secret))
	if err != nil || !strings.HasPrefix(one, "apikey:") || strings.Contains(one, "sk_") || len(one) < len("apikey:")+22 {
		t.Errorf("key %q, %v: want a digest of at least 128 bits", one, err)
	}
	if two, _ := issued(request(secret)); two != one {
		t.Errorf("the same credential gives %q and %q", one, two)
	}
	if other, _ := invented(request(secret + " ")); other == one {
		t.Error("two credentials share a key")
	}
	for name, r := range map[string]Request{"absent": fakeRequest{}, "empty": request("")} {
		if key, err := invented(r); key != "" || !errors.Is(err, ErrNoKey) {
			t.Errorf("%s: %q, %v", name, key, err)
		}
	}
	if key, err := issued(request("sk_live_invented")); key != "" || !errors.Is(err, ErrNoKey) {
		t.Errorf("a credential that is not known: %q, %v", key, err)
	}
}

func constant(key string, err error) Func { return func(Request) (string, error) { return key, err } }

func TestFirstOf(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	none, a, b, bad := constant("", ErrNoKey), constant("a", nil), constant("b", nil), constant("", broken)
	for _, c := range []struct {
		fs   []Func
		want string
		err  error
	}{
		{[]Func{a, b}, "a", nil},
		{[]Func{none, b}, "b", nil},
		{[]Func{none, none}, "", ErrNoKey},
		{[]Func{none, bad, a}, "", broken},
		{[]Func{a, bad}, "a", nil},
	} {
		if key, err := FirstOf(c.fs...)(fakeRequest{}); key != c.want || !errors.Is(err, c.err) {
			t.Errorf("got %q, %v; want %q, %v", key, err, c.want, c.err)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	none, a, b, bad := constant("", ErrNoKey), constant("a", nil), constant("b,%", nil), constant("", broken)
	for _, c := range []struct {
		fs   []Func
		want string
		err  error
	}{
		{[]Func{a, b}, "join:a,b%2C%25", nil},
		{[]Func{b, a}, "join:b%2C%25,a", nil},
		{[]Func{constant(strings.Repeat("x", 64), nil), a}, "join:" + strings.Repeat("x", 64) + ",a", nil},
		{[]Func{constant(strings.Repeat("x", 65), nil), a}, "join:%~lTfF_fEgSC99WNJentWD9SwCtOME6oFNsWM61WWu1-k,a", nil},
		{[]Func{a, none}, "", ErrNoKey},
		{[]Func{none, a}, "", ErrNoKey},
		{[]Func{a, bad}, "", broken},
	} {
		if key, err := Join(c.fs...)(fakeRequest{}); key != c.want || !errors.Is(err, c.err) {
			t.Errorf("got %q, %v; want %q, %v", key, err, c.want, c.err)
		}
	}
}

// TestJoinDigestsLongParts has parts of a megabyte, of characters that would be escaped:
// they are digested instead, and every byte of them counts.
func TestJoinDigestsLongParts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(",%", 1<<19)
	keys := map[string]bool{}
	for _, parts := range [][]string{
		{long, "a"}, {long + "x", "a"}, {"x" + long, "a"}, {"a", long}, {long, long}, {"%~" + strings.Repeat("A", 43), "a"},
	} {
		key := ForJoin(parts...)
		if len(key) > 200 {
			t.Errorf("a key of %d bytes", len(key))
		}
		keys[key] = true
		var fs []Func
		for _, part := range parts {
			fs = append(fs, constant(part, nil))
		}
		if got, err := Join(fs...)(fakeRequest{}); got != key || err != nil {
			t.Errorf("Join: %q, %v; ForJoin: %q", got, err, key)
		}
	}
	if len(keys) != 6 {
		t.Errorf("%d different keys of 6: %v", len(keys), keys)
	}
}

// BenchmarkJoin joins a short key and one of a megabyte, as a client may send it.
func BenchmarkJoin(b *testing.B) {
	for name, key := range map[string]string{"short": "header:X-Tenant:acme", "long": strings.Repeat(",", 1<<20)} {
		b.Run(name, func(b *testing.B) {
			f := Join(constant("ip:192.0.2.1", nil), constant(key, nil))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = f(fakeRequest{})
			}
		})
	}
}

// FuzzJoin holds that different parts never make the same key.
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
			t.Errorf("Join(%q, %q) = %q, Join(%q, %q) = %q", a1, a2, one, b1, b2, other)
		}
		nested, _ := Join(Join(constant(a1, nil), constant(a2, nil)), constant(b1, nil))(fakeRequest{})
		flat, _ := Join(constant(a1, nil), constant(a2, nil), constant(b1, nil))(fakeRequest{})
		if nested == flat {
			t.Errorf("a nested Join is the flat one: %q", flat)
		}
	})
}

// TestPanics has what a program gets wrong at its start.
func TestPanics(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(){
		"APIKey": func() { APIKey("") },
		`APIKey("X API"): no header can have this name, because of the ' ': want one such as "X-API-Key"`: func() { APIKey("X API") },
		`APIKey("X-API-Key:")`:                  func() { APIKey("X-API-Key:") },
		`Header("X-Ténant")`:                    func() { Header("X-Ténant") },
		`Header("X-Tenant\n"): no header`:       func() { Header("X-Tenant\n") },
		`Header("host"): net/http`:              func() { Header("host") },
		`Cookie("a;b"): no cookie`:              func() { Cookie("a;b") },
		`ForHeader("X Tenant")`:                 func() { ForHeader("X Tenant", "acme") },
		`ForJoin()`:                             func() { ForJoin() },
		`ForIP: the zero Addr: check the error`: func() { ForIP(netip.Addr{}) },
		`ForPeer: the zero Addr`:                func() { ForPeer(netip.Addr{}) },
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
					t.Errorf("panic %q, want one that names %s", got, want)
				}
			}()
			f()
		}()
	}
}
