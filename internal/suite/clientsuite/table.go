package clientsuite

import (
	"strings"

	"github.com/redislimit/redislimit/keyfunc"
)

// A row is a request, a configuration, and the key that must result.
type row struct {
	f      keyfunc.Func
	peer   string
	header []string
	want   string // the fallback key of the peer if it begins with "peer:"
}

const (
	proxy  = "10.0.0.1:4711"      // a proxy of ours
	direct = "203.0.113.9:4711"   // a client
	socket = "@"                  // a unix socket
	six    = "[2001:db8::9]:4711" // a client with IPv6
	xff    = "X-Forwarded-For: "
	fwd    = "Forwarded: "
)

func ip(opts ...keyfunc.IPOption) keyfunc.Func { return keyfunc.IP(opts...) }

var (
	plain    = ip()
	ours     = ip(keyfunc.TrustedProxies("10.0.0.0/8", "fd00::/8"))
	oneHop   = ip(keyfunc.TrustedHops(1))
	twoHops  = ip(keyfunc.TrustedHops(2))
	onSocket = ip(keyfunc.TrustedProxies("unix"))
	realIP   = ip(keyfunc.TrustedHeader("X-Real-IP"))
	edge     = ip(keyfunc.TrustedHeader("CF-Connecting-IP"), keyfunc.TrustedProxies("10.0.0.1"))
	standard = ip(keyfunc.Forwarded(), keyfunc.TrustedProxies("10.0.0.0/8", "fd00::/8"))
	hopsStd  = ip(keyfunc.Forwarded(), keyfunc.TrustedHops(2))
)

// addresses are requests without trusted proxies, from addresses that are written in different forms.
var addresses = []row{
	{plain, direct, nil, "ip:203.0.113.9"},
	{plain, "127.0.0.1:1", nil, "ip:127.0.0.1"},
	{plain, six, nil, "ip:2001:db8::/64"},
	{plain, "[2001:db8::ffff:ffff:ffff:ffff]:80", nil, "ip:2001:db8::/64"},
	{plain, "[2001:db8:0:1::]:80", nil, "ip:2001:db8:0:1::/64"},
	{plain, "[::1]:80", nil, "ip:::/64"},
	{plain, "[::ffff:203.0.113.9]:80", nil, "ip:203.0.113.9"},
	{plain, "[::ffff:cb00:7109]:80", nil, "ip:203.0.113.9"},
	{plain, "[64:ff9b::203.0.113.9]:80", nil, "ip:203.0.113.9"}, // an IPv4 client behind NAT64
	{plain, "[64:ff9b::10.0.0.1]:80", nil, "ip:64:ff9b::/64"},   // NAT64 does not translate private addresses
	{ip(keyfunc.IPv4Prefix(24)), "[64:ff9b::cb00:7109]:80", nil, "ip:203.0.113.0/24"},
	{plain, "[fe80::1%lo]:80", nil, "ip:fe80::/64"},
	{plain, "[64:ff9b::127.0.0.1]:80", nil, "ip:64:ff9b::/64"},
	{plain, "[64:ff9b::c000:201%eth0]:80", nil, "ip:192.0.2.1"},
	{plain, "[64:ff9b:1::c000:201]:80", nil, "ip:64:ff9b:1::/64"},
	{plain, "[64:ff9b::1:c000:201]:80", nil, "ip:64:ff9b::/64"},
	{plain, "192.0.2.1", nil, "ip:192.0.2.1"},
	{plain, "2001:db8:1:3::1", nil, "ip:2001:db8:1:3::/64"},
	{plain, "192.0.2.1:port", nil, "ip:unix"},
	{plain, socket, nil, "ip:unix"},
	{plain, "/run/app.sock", nil, "ip:unix"},
	{plain, direct, []string{xff + "6.6.6.6"}, "ip:203.0.113.9"},
	{plain, proxy, []string{xff + "6.6.6.6"}, "ip:10.0.0.1"},
	{plain, socket, []string{xff + "6.6.6.6"}, "ip:unix"},
	{plain, direct, []string{"X-Real-IP: 6.6.6.6", "True-Client-IP: 6.6.6.6", "CF-Connecting-IP: 6.6.6.6"}, "ip:203.0.113.9"},
	{plain, direct, []string{"X-Client-IP: 6.6.6.6", "Fastly-Client-IP: 6.6.6.6", "X-Cluster-Client-IP: 6.6.6.6"}, "ip:203.0.113.9"},
	{plain, direct, []string{fwd + "for=6.6.6.6"}, "ip:203.0.113.9"},
	{ip(keyfunc.IPv6Prefix(48)), six, nil, "ip:2001:db8::/48"},
	{ip(keyfunc.IPv6Prefix(56)), "[2001:db8:1:2ff::1]:1", nil, "ip:2001:db8:1:200::/56"},
	{ip(keyfunc.IPv6Prefix(128)), six, nil, "ip:2001:db8::9"},
	{ip(keyfunc.IPv6Prefix(1)), six, nil, "ip:::/1"},
	{ip(keyfunc.IPv4Prefix(24)), direct, nil, "ip:203.0.113.0/24"},
	{ip(keyfunc.IPv4Prefix(24)), "[::ffff:203.0.113.9]:80", nil, "ip:203.0.113.0/24"},
	{ip(keyfunc.IPv4Prefix(24)), six, nil, "ip:2001:db8::/64"},
	{keyfunc.Peer(), direct, nil, "peer:203.0.113.9"},
	{keyfunc.Peer(), six, nil, "peer:2001:db8::/64"},
	{keyfunc.Peer(), socket, nil, "peer:unix"},
}

// proxied are requests through proxies that write X-Forwarded-For.
var proxied = []row{
	{ours, proxy, []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, nil, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + ""}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "  203.0.113.9\t"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "203.0.113.9:5555"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "2001:db8::9"}, "ip:2001:db8::/64"},
	{ours, proxy, []string{xff + "[2001:db8::9]"}, "ip:2001:db8::/64"},
	{ours, proxy, []string{xff + "[2001:db8::9]:5555"}, "ip:2001:db8::/64"},
	{ours, proxy, []string{xff + "::ffff:203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "fe80::1%eth0"}, "ip:fe80::/64"},
	{ours, proxy, []string{xff + "64:ff9b::203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "6.6.6.6, 64:ff9b::10.9.9.9"}, "ip:64:ff9b::/64"}, // this is not one of our proxies
	{ours, "[64:ff9b::10.0.0.1]:80", []string{xff + "6.6.6.6"}, "ip:64:ff9b::/64"},
	{ours, proxy, []string{xff + "6.6.6.6, 203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "6.6.6.6,203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "203.0.113.9, 10.9.9.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "6.6.6.6, 203.0.113.9, 10.9.9.9, 10.8.8.8"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "203.0.113.9, ::ffff:10.9.9.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "203.0.113.9, fd12::1"}, "ip:203.0.113.9"},
	{ours, "[fd12::2]:80", []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{ours, "[::ffff:10.0.0.1]:80", []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "10.9.9.9"}, "ip:10.9.9.9"},
	{ours, proxy, []string{xff + "10.7.7.7, 10.9.9.9"}, "ip:10.7.7.7"},
	{ours, proxy, []string{xff + "6.6.6.6", xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "203.0.113.9", xff + "10.9.9.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "6.6.6.6, 203.0.113.9", xff + "10.9.9.9, 10.8.8.8"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "unknown"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "unknown, 203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "203.0.113.9, unknown"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "203.0.113.9, unknown, 10.9.9.9"}, "ip:10.9.9.9"},
	{ours, proxy, []string{xff + "203.0.113.9, garbage, 10.9.9.9"}, "ip:10.9.9.9"},
	{ours, proxy, []string{xff + "203.0.113.9,, 10.9.9.9"}, "ip:10.9.9.9"},
	{ours, proxy, []string{xff + "203.0.113.9,"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + ","}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "1.2.3"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "1.2.3.4.5"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "1.2.3.400"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "0x7f000001"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "01.02.03.04"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "203.0.113.9:99999"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "[2001:db8::9"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "[203.0.113.9]"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "localhost"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + `"203.0.113.9"`}, "ip:10.0.0.1"},
	{ours, direct, []string{xff + "6.6.6.6"}, "ip:203.0.113.9"},
	{ours, "11.0.0.1:80", []string{xff + "6.6.6.6"}, "ip:11.0.0.1"},
	{ours, socket, []string{xff + "6.6.6.6"}, "ip:unix"},
	{ours, proxy, []string{"X-Real-IP: 6.6.6.6"}, "ip:10.0.0.1"},
	{ours, proxy, []string{fwd + "for=6.6.6.6"}, "ip:10.0.0.1"},
	{onSocket, socket, []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{onSocket, "/run/app.sock", []string{xff + "6.6.6.6, 203.0.113.9"}, "ip:203.0.113.9"},
	{onSocket, socket, nil, "ip:unix"},
	{onSocket, "client.example:80", []string{xff + "6.6.6.6"}, "ip:unix"}, // a middleware has overwritten the address: this is not a unix socket
	{onSocket, direct, []string{xff + "6.6.6.6"}, "ip:203.0.113.9"},
	{ip(keyfunc.TrustedProxies("10.0.0.1")), proxy, []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{ip(keyfunc.TrustedProxies("10.0.0.1")), "10.0.0.2:1", []string{xff + "6.6.6.6"}, "ip:10.0.0.2"},
	{ip(keyfunc.TrustedProxies("::ffff:10.0.0.0/104")), proxy, []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{ip(keyfunc.TrustedProxies("10.0.0.0/8"), keyfunc.IPv4Prefix(24)), proxy, []string{xff + "203.0.113.9"}, "ip:203.0.113.0/24"},
	{oneHop, proxy, []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{oneHop, direct, []string{xff + "6.6.6.6, 198.51.100.7"}, "ip:198.51.100.7"},
	{oneHop, proxy, nil, "ip:10.0.0.1"},
	{oneHop, proxy, []string{xff + "6.6.6.6, unknown"}, "ip:10.0.0.1"},
	{twoHops, proxy, []string{xff + "6.6.6.6, 203.0.113.9, 198.51.100.7"}, "ip:203.0.113.9"},
	{twoHops, proxy, []string{xff + "6.6.6.6, 203.0.113.9", xff + "198.51.100.7"}, "ip:203.0.113.9"},
	{twoHops, proxy, []string{xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{twoHops, proxy, []string{xff + "6.6.6.6, unknown, 198.51.100.7"}, "ip:198.51.100.7"},
	{twoHops, proxy, nil, "ip:10.0.0.1"},
}

// single are requests with a single header that is set at the edge.
var single = []row{
	{realIP, proxy, []string{"X-Real-IP: 203.0.113.9"}, "ip:203.0.113.9"},
	{realIP, proxy, []string{"x-real-ip: 203.0.113.9"}, "ip:203.0.113.9"},
	{realIP, direct, []string{"X-Real-IP: 198.51.100.7"}, "ip:198.51.100.7"},
	{realIP, proxy, []string{"X-Real-IP: 2001:db8::9"}, "ip:2001:db8::/64"},
	{realIP, proxy, []string{"X-Real-IP: [2001:db8::9]:80"}, "ip:2001:db8::/64"},
	{realIP, proxy, nil, "ip:10.0.0.1"},
	{realIP, proxy, []string{"X-Real-IP: 6.6.6.6, 203.0.113.9"}, "ip:10.0.0.1"},
	{realIP, proxy, []string{"X-Real-IP: 6.6.6.6", "X-Real-IP: 203.0.113.9"}, "ip:10.0.0.1"},
	{realIP, proxy, []string{"X-Real-IP: unknown"}, "ip:10.0.0.1"},
	{realIP, proxy, []string{"X-Real-IP: "}, "ip:10.0.0.1"},
	{realIP, proxy, []string{xff + "6.6.6.6"}, "ip:10.0.0.1"},
	{realIP, socket, []string{"X-Real-IP: 203.0.113.9"}, "ip:203.0.113.9"},
	{edge, proxy, []string{"CF-Connecting-IP: 203.0.113.9"}, "ip:203.0.113.9"},
	{edge, direct, []string{"CF-Connecting-IP: 6.6.6.6"}, "ip:203.0.113.9"},
	{edge, proxy, []string{xff + "6.6.6.6", "CF-Connecting-IP: 203.0.113.9"}, "ip:203.0.113.9"},
	{edge, proxy, []string{xff + "6.6.6.6"}, "ip:10.0.0.1"},
}

// forwarded are requests through proxies that write Forwarded.
var forwarded = []row{
	{standard, proxy, []string{fwd + "for=203.0.113.9"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "For=203.0.113.9"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "for=203.0.113.9;proto=http;by=10.0.0.1"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "proto=https; for=203.0.113.9"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for="203.0.113.9"`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for="203.0.113.9:5555"`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for="[2001:db8::9]"`}, "ip:2001:db8::/64"},
	{standard, proxy, []string{fwd + `for="[2001:db8::9]:5555"`}, "ip:2001:db8::/64"},
	{standard, proxy, []string{fwd + "for=6.6.6.6, for=203.0.113.9"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "for=203.0.113.9, for=10.9.9.9;by=10.0.0.1"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "for=6.6.6.6", fwd + "for=203.0.113.9"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "for=203.0.113.9", fwd + "for=10.9.9.9"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "for=unknown"}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + "for=_hidden, for=10.9.9.9"}, "ip:10.9.9.9"},
	{standard, proxy, []string{fwd + `for="_SEVKISEK"`}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + "by=10.0.0.1"}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + "for=6.6.6.6;for=203.0.113.9"}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + `for=", for=203.0.113.9`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for="6.6.6.6, for=203.0.113.9`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for=6.6.6.6;x="\", for=203.0.113.9`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for=203.0.113.9;ext="a,b;for=6.6.6.6"`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for=203.0.113.9;ext="a\",b"`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for=203.0.113.9;ext="a,\"b"`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `ext="for=6.6.6.6";for=203.0.113.9`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + "for=6.6.6.6" + strings.Repeat(", for=10.9.9.9", 64)}, "ip:10.9.9.9"},
	{standard, proxy, []string{fwd + ""}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + "for="}, "ip:10.0.0.1"},
	{standard, proxy, []string{xff + "6.6.6.6"}, "ip:10.0.0.1"},
	{standard, direct, []string{fwd + "for=6.6.6.6"}, "ip:203.0.113.9"},
	{hopsStd, proxy, []string{fwd + "for=6.6.6.6, for=203.0.113.9, for=198.51.100.7"}, "ip:203.0.113.9"},
}

// long is longer than the part that Join keeps unchanged, and has characters that Join escapes.
var long = strings.Repeat("a,%", 1000)

func known(s string) bool { return s == "issued" }

var keyed = keyfunc.APIKey("X-API-Key", keyfunc.Known(known))

// credentials are requests with credentials.
var credentials = []row{
	{keyed, direct, []string{"X-API-Key: issued"}, keyfunc.ForAPIKey("issued")},
	{keyed, direct, []string{"x-api-key: issued"}, keyfunc.ForAPIKey("issued")},
	{keyed, direct, []string{"X-API-Key: invented"}, "peer:203.0.113.9"},
	{keyed, direct, nil, "peer:203.0.113.9"},
	{keyed, six, []string{"X-API-Key: "}, "peer:2001:db8::/64"},
	{keyed, socket, nil, "peer:unix"},
	{keyfunc.APIKey("X-API-Key"), direct, []string{"X-API-Key: 203.0.113.9"}, keyfunc.ForAPIKey("203.0.113.9")},
	{keyfunc.APIKey("X-API-Key", keyfunc.Secret("pepper of 16 bytes or more")), direct, []string{"X-API-Key: issued"}, keyfunc.ForAPIKey("issued", keyfunc.Secret([]byte("pepper of 16 bytes or more")))},
	{keyfunc.Bearer(keyfunc.Known(known)), direct, []string{"Authorization: Bearer issued"}, bearer},
	{keyfunc.Bearer(keyfunc.Known(known)), direct, []string{"Authorization: bEARER  issued"}, bearer},
	{keyfunc.Bearer(keyfunc.Known(known)), direct, []string{"Authorization: Digest issued"}, "peer:203.0.113.9"},
	{keyfunc.Bearer(keyfunc.Known(known)), direct, []string{"Authorization: Bearer"}, "peer:203.0.113.9"},
	{keyfunc.Bearer(keyfunc.Known(known)), direct, []string{"Authorization: Bearer forged"}, "peer:203.0.113.9"},
	{keyfunc.Cookie("session", keyfunc.Known(known)), direct, []string{"Cookie: a=b; session=issued"}, cookie},
	{keyfunc.Cookie("session", keyfunc.Known(known)), direct, []string{"Cookie: session=forged"}, "peer:203.0.113.9"},
	{keyfunc.Cookie("session", keyfunc.Known(known)), direct, nil, "peer:203.0.113.9"},
	{keyfunc.Query("key", keyfunc.Known(known)), direct, nil, "peer:203.0.113.9"},
	{keyfunc.BasicAuth(), direct, []string{"Authorization: Basic YWxpY2U6c2VjcmV0"}, "basic:alice"},
	{keyfunc.BasicAuth(), direct, []string{"Authorization: Basic YWxpY2U="}, "peer:203.0.113.9"},
	{keyfunc.BasicAuth(), direct, []string{"Authorization: Basic !!!"}, "peer:203.0.113.9"},
	{keyfunc.BasicAuth(), direct, []string{"Authorization: Basic OnNlY3JldA=="}, "peer:203.0.113.9"},
	{keyfunc.Header("x-tenant"), direct, []string{"X-Tenant: acme"}, "header:X-Tenant:acme"},
	{keyfunc.Header("X-Tenant"), direct, nil, "peer:203.0.113.9"},
	{keyfunc.Method(), direct, nil, "method:GET"},
	{keyfunc.Global(), direct, nil, "global"},
	{keyfunc.FirstOf(keyed, ours), proxy, []string{"X-API-Key: issued", xff + "203.0.113.9"}, keyfunc.ForAPIKey("issued")},
	{keyfunc.FirstOf(keyed, ours), proxy, []string{"X-API-Key: invented", xff + "203.0.113.9"}, "ip:203.0.113.9"},
	{keyfunc.Join(keyfunc.Method(), ours), proxy, []string{xff + "203.0.113.9"}, "join:method:GET,ip:203.0.113.9"},
	{keyfunc.Join(keyed, ours), proxy, []string{xff + "203.0.113.9"}, "peer:10.0.0.1"},
	{keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.Global()), direct, []string{"X-Tenant: " + long}, keyfunc.ForJoin("header:X-Tenant:"+long, "global")},
}

// The keys of the credential "issued", by its kind.
var (
	bearer = "bearer:" + keyfunc.ForAPIKey("issued")[len("apikey:"):]
	cookie = "cookie:session:" + keyfunc.ForAPIKey("issued")[len("apikey:"):]
)
