package admin

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/redislimit/redislimit/keyfunc"
)

// A kind is a way to name a key.
type kind struct {
	By    string `json:"by"`              // the name of the kind in JSON
	Label string `json:"label"`           // the name of the kind on the page
	Name  string `json:"name,omitempty"`  // what the Name of a part is, such as a header; empty if a part has no Name
	Value string `json:"value,omitempty"` // an example of a part's Value; empty if a part has no Value

	key func(name, value string) (string, error)
}

// kinds has the kinds of keys that package keyfunc makes. Keys of ForJoin consist of several parts.
var kinds = []kind{
	{"key", "Key", "", "user:alice", func(_, v string) (string, error) { return v, nil }},
	{"ip", "IP address", "", "192.0.2.1, or 2001:db8::/56", ipKey},
	{"user", "User", "", "alice", plain(keyfunc.ForUser)},
	{"apikey", "API key", "", "the key itself", plain(func(v string) string { return keyfunc.ForAPIKey(v) })},
	{"bearer", "Bearer token", "", "the token itself", plain(func(v string) string { return keyfunc.ForBearer(v) })},
	{"basic", "Basic auth user", "", "alice", plain(keyfunc.ForBasicAuth)},
	{"cookie", "Cookie", "cookie", "its value", func(n, v string) (string, error) { return keyfunc.ForCookie(n, v), nil }},
	{"query", "Query parameter", "parameter", "its value", func(n, v string) (string, error) { return keyfunc.ForQuery(n, v), nil }},
	{"header", "Header", "header", "its value", func(n, v string) (string, error) { return keyfunc.ForHeader(n, v), nil }},
	{"route", "Route", "", "/users/{id}", plain(keyfunc.ForRoute)},
	{"method", "Method", "", "POST", plain(keyfunc.ForMethod)},
	{"peer", "Peer address", "", "192.0.2.1", peerKey},
	{"global", "All requests", "", "", func(string, string) (string, error) { return keyfunc.ForGlobal(), nil }},
}

func plain(key func(string) string) func(_, v string) (string, error) {
	return func(_, v string) (string, error) { return key(v), nil }
}

// ipKey accepts an address, or a network such as package keyfunc counts with IPv4Prefix or IPv6Prefix.
func ipKey(_, v string) (string, error) {
	network, err := netip.ParsePrefix(v)
	if err != nil {
		addr, err := netip.ParseAddr(v)
		if err != nil {
			return "", err
		}
		return keyfunc.ForIP(addr), nil
	}
	bits := keyfunc.IPv6Prefix
	if network.Addr().Is4() {
		bits = keyfunc.IPv4Prefix
	}
	return keyfunc.ForIP(network.Addr(), bits(network.Bits())), nil
}

func peerKey(_, v string) (string, error) {
	addr, err := netip.ParseAddr(v)
	if err != nil {
		return "", err
	}
	return keyfunc.ForPeer(addr), nil
}

// LookUp adds a way to look a key up on the page, under a label. key returns the key for a value that a
// person enters. Use it for keys that package admin cannot compute itself, such as the digest of an API
// key with a secret:
//
//	watch.LookUp("API key, ours", func(value string) string {
//		return keyfunc.ForAPIKey(value, keyfunc.Secret(secret))
//	})
func (w *Watch) LookUp(label string, key func(value string) string) {
	if label == "" || key == nil {
		panic(fmt.Sprintf("admin: LookUp(%q): want a label and a function", label))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	with := append([]kind{{By: label, Label: label, Value: "its value", key: plain(key)}}, *w.kinds.Load()...)
	w.kinds.Store(&with)
}

// A part is one of the parts of a key. Several parts are joined by keyfunc.ForJoin.
type part struct {
	By    string `json:"by"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// keyOf returns the key that a middleware's key function makes of parts.
func (w *Watch) keyOf(parts []part) (string, error) {
	keys, kinds := make([]string, len(parts)), *w.kinds.Load()
	for i, p := range parts {
		at := slices.IndexFunc(kinds, func(k kind) bool { return k.By == p.By })
		if at < 0 {
			return "", fmt.Errorf("there is no LookUp with the label %.80q", p.By)
		}
		k := kinds[at]
		if k.Value != "" && p.Value == "" {
			return "", fmt.Errorf("%s: the value is empty", k.Label)
		}
		var err error
		if keys[i], err = k.keyOf(p); err != nil {
			return "", fmt.Errorf("%s: %w", k.Label, err)
		}
	}
	switch {
	case len(keys) == 0:
		return "", errors.New("no key is given")
	case len(keys) == 1:
		return keys[0], nil
	}
	return keyfunc.ForJoin(keys...), nil
}

// keyOf returns the key of a part. It turns a panic of package keyfunc into an error, because here a
// person has made the mistake and not the program.
func (k kind) keyOf(p part) (key string, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = errors.New(strings.TrimPrefix(fmt.Sprint(value), "keyfunc: "))
		}
	}()
	return k.key(p.Name, p.Value)
}
