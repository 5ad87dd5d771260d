package keyfunc

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A sibling is a Func, a request, and the key that the For... function of the Func returns for the
// request's values.
type sibling struct {
	f       Func
	request fakeRequest
	key     string
}

// siblings returns, for each function that makes a Func, keys that were made without a request.
func siblings() map[string][]sibling {
	const method = http.MethodPost
	with := func(name, value string) fakeRequest {
		return fakeRequest{method: method, header: http.Header{name: {value}}}
	}
	all := map[string][]sibling{
		"User": {
			{User("user"), fakeRequest{values: map[any]any{"user": "alice"}}, ForUser("alice")},
			{User("user"), fakeRequest{values: map[any]any{"user": 42}}, ForUser("42")},
		},
		"BasicAuth": {{BasicAuth(), with("Authorization", "Basic YWxpY2U6c2VjcmV0"), ForBasicAuth("alice")}},
		"Header": {
			{Header("X-Tenant"), with("X-Tenant", "acme"), ForHeader("X-Tenant", "acme")},
			{Header("x-tenant"), with("X-Tenant", "acme"), ForHeader("X-TENANT", "acme")},
		},
		"Route":  {{Route(), fakeRequest{route: "/users/{id}"}, ForRoute("/users/{id}")}},
		"Global": {{Global(), fakeRequest{}, ForGlobal()}},
		"Method": {
			{Method(), fakeRequest{method: method}, ForMethod(method)},
			{Method(), fakeRequest{method: "INVENTED"}, ForMethod("ANOTHER")},
		},
		"Join": {
			{Join(Global(), Method()), fakeRequest{method: method}, ForJoin(ForGlobal(), ForMethod(method))},
			{Join(Header("T")), with("T", "a,b%"), ForJoin(ForHeader("T", "a,b%"))},
			{Join(Header("T"), Global()), with("T", strings.Repeat("a", 100)), ForJoin(ForHeader("T", strings.Repeat("a", 100)), ForGlobal())},
			{Join(Join(Global(), Global()), Global()), fakeRequest{}, ForJoin(ForJoin(ForGlobal(), ForGlobal()), ForGlobal())},
		},
		// FirstOf returns the key of one of its Funcs, which has its own For... function.
		"FirstOf": {{FirstOf(BasicAuth(), Global()), fakeRequest{}, ForGlobal()}},
	}
	for _, o := range [][]CredentialOption{nil, {Secret("pepper of 16 bytes or more")}, {Secret([]byte("salt of 16 bytes or more")), Known(func(string) bool { return true })}} {
		all["APIKey"] = append(all["APIKey"], sibling{APIKey("K", o...), with("K", "s3cret"), ForAPIKey("s3cret", o...)})
		all["Bearer"] = append(all["Bearer"], sibling{Bearer(o...), with("Authorization", "Bearer s3cret"), ForBearer("s3cret", o...)})
		all["Cookie"] = append(all["Cookie"], sibling{Cookie("c", o...), fakeRequest{cookies: "s3cret"}, ForCookie("c", "s3cret", o...)})
		all["Query"] = append(all["Query"], sibling{Query("q", o...), fakeRequest{query: "s3cret"}, ForQuery("q", "s3cret", o...)})
	}
	for _, addr := range []string{"192.0.2.1", "::ffff:192.0.2.1", "64:ff9b::192.0.2.1", "2001:db8::1", "fe80::1%eth0"} {
		r, parsed := fakeRequest{remote: addr}, netip.MustParseAddr(addr)
		all["Peer"] = append(all["Peer"], sibling{Peer(), r, ForPeer(parsed)})
		for _, o := range [][]IPOption{nil, {IPv6Prefix(48), IPv4Prefix(24)}, {TrustedProxies("10.0.0.0/8")}} {
			all["IP"] = append(all["IP"], sibling{IP(o...), r, ForIP(parsed, o...)})
		}
	}
	return all
}

// TestForElsewhere checks that the For... functions, which support uses for Peek and Reset, return the same keys as the Funcs
// return for requests, and that every function that makes a Func has a For... function.
func TestForElsewhere(t *testing.T) {
	t.Parallel()
	all := siblings()
	for name, of := range all {
		for i, s := range of {
			if key, err := s.f(s.request); key != s.key || err != nil {
				t.Errorf("%s %d: the Func returns %q, %v; want %q, the key made without a request", name, i, key, err, s.key)
			}
		}
	}
	made, exported := functions(t)
	for _, name := range made {
		if all[name] == nil {
			t.Errorf("siblings has no row for %s, want one with For%s", name, name)
		}
		if name != "FirstOf" && !slices.Contains(exported, "For"+name) {
			t.Errorf("%s makes a Func, but For%s does not exist: support cannot find its counts", name, name)
		}
	}
	if len(made) != len(all) {
		t.Errorf("siblings has rows for %d functions, want %d: %q", len(all), len(made), made)
	}
	if digest := strings.TrimPrefix(ForAPIKey("s"), "apikey:"); len(digest) != 144/6 {
		t.Errorf("the digest %q has %d characters, want 24 for 144 bits", digest, len(digest))
	}
	if ForAPIKey("s") == ForAPIKey("s", Secret("pepper of 16 bytes or more")) || ForAPIKey("s", Secret("a of 16 bytes or more")) == ForAPIKey("s", Secret("b of 16 bytes or more")) {
		t.Error("the digests with and without a secret, or with two secrets, are equal")
	}
}

// declared matches the declarations of exported functions. Its second group is not empty if the function returns a Func.
var declared = regexp.MustCompile(`(?m)^func ([A-Z]\w*)\((.*\) Func {)?`)

// functions returns the names of the exported functions of the package that return a Func, and of all exported functions.
func functions(t *testing.T) (made, exported []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range declared.FindAllStringSubmatch(string(text), -1) {
			exported = append(exported, f[1])
			if f[2] != "" {
				made = append(made, f[1])
			}
		}
	}
	return made, exported
}
