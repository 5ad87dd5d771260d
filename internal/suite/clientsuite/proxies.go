package clientsuite

import (
	"fmt"
	"strings"

	"github.com/redislimit/redislimit/keyfunc"
)

func (r row) text() string { return fmt.Sprintf("from %s with %q", r.peer, r.header) }

var (
	sessionCookie = keyfunc.Cookie("session", keyfunc.Known(known))

	// A load balancer in 10.0.0.0/8 behind a content delivery network in 203.0.113.128/25.
	network = ip(keyfunc.TrustedProxies("10.0.0.0/8", "203.0.113.128/25", "2001:db8:cd::/48"))
	// A Kubernetes ingress in its pod network, and nginx on the same machine.
	ingress = ip(keyfunc.TrustedProxies("10.244.0.0/16", "127.0.0.1", "::1", "unix"))
	three   = ip(keyfunc.TrustedHops(3))
)

func header(name string) keyfunc.Func { return ip(keyfunc.TrustedHeader(name)) }

func edgeHeader(name string) keyfunc.Func {
	return ip(keyfunc.TrustedHeader(name), keyfunc.TrustedProxies("10.0.0.0/8"))
}

// proxies are requests as well-known proxies and services pass them on, with headers that a client may have sent before.
var proxies = []row{
	// Amazon's ALB and CloudFront, Google's balancer (client, balancer), Azure's gateway (with ports).
	{ours, proxy, []string{xff + "198.51.100.7"}, "ip:198.51.100.7"},
	{ours, proxy, []string{xff + "6.6.6.6,198.51.100.7:49152"}, "ip:198.51.100.7"},
	{ours, proxy, []string{xff + "6.6.6.6:1, 198.51.100.7:49152"}, "ip:198.51.100.7"},
	{ours, proxy, []string{xff + "[2001:db8::9]:49152"}, "ip:2001:db8::/64"},
	{ours, proxy, []string{xff + "6.6.6.6, [2001:db8::9]:49152, 10.1.2.3:443"}, "ip:2001:db8::/64"},
	{twoHops, "35.191.0.1:5", []string{xff + "6.6.6.6, 198.51.100.7, 34.120.0.1"}, "ip:198.51.100.7"},
	{twoHops, "35.191.0.1:5", []string{xff + "6.6.6.6,2001:db8::9,34.120.0.1"}, "ip:2001:db8::/64"},
	{twoHops, "35.191.0.1:5", []string{xff + "34.120.0.1"}, "ip:34.120.0.1"},
	{three, proxy, []string{xff + "6.6.6.6, 198.51.100.7, 203.0.113.200, 10.1.2.3"}, "ip:198.51.100.7"},
	{three, proxy, []string{xff + "6.6.6.6", xff + "198.51.100.7", xff + "203.0.113.200", xff + "10.1.2.3"}, "ip:198.51.100.7"},
	{three, proxy, []string{xff + "198.51.100.7, 10.1.2.3"}, "ip:198.51.100.7"},
	{three, proxy, []string{xff + "6.6.6.6, 198.51.100.7,, 10.1.2.3"}, "ip:10.1.2.3"},

	// A network of proxies in front of a load balancer. An address next to the network does not belong to it.
	{network, proxy, []string{xff + "198.51.100.7, 203.0.113.200"}, "ip:198.51.100.7"},
	{network, proxy, []string{xff + "198.51.100.7, 203.0.113.128, 203.0.113.255"}, "ip:198.51.100.7"},
	{network, proxy, []string{xff + "6.6.6.6, 203.0.113.127"}, "ip:203.0.113.127"},
	{network, proxy, []string{xff + "198.51.100.7, 2001:db8:cd:ffff::1"}, "ip:198.51.100.7"},
	{network, proxy, []string{xff + "6.6.6.6, 2001:db8:ce::1"}, "ip:2001:db8:ce::/64"},
	{network, "203.0.113.200:1", []string{xff + "198.51.100.7"}, "ip:198.51.100.7"},
	{network, "203.0.113.127:1", []string{xff + "6.6.6.6"}, "ip:203.0.113.127"},
	{network, "[2001:db8:cd::1]:1", []string{xff + "2001:db8::9, 10.0.0.2"}, "ip:2001:db8::/64"},
	{network, proxy, []string{xff + "6.6.6.6, 10.0.0.256"}, "ip:10.0.0.1"},
	{network, proxy, []string{xff + "10.0.0.2, 203.0.113.200"}, "ip:10.0.0.2"},

	// A Kubernetes ingress, and nginx or Caddy on the same machine.
	{ingress, "10.244.1.2:80", []string{xff + "198.51.100.7"}, "ip:198.51.100.7"},
	{ingress, "10.245.1.2:80", []string{xff + "6.6.6.6"}, "ip:10.245.1.2"},
	{ingress, "127.0.0.1:80", []string{xff + "6.6.6.6, 198.51.100.7"}, "ip:198.51.100.7"},
	{ingress, "127.0.0.2:80", []string{xff + "6.6.6.6"}, "ip:127.0.0.2"},
	{ingress, "[::1]:80", []string{xff + "198.51.100.7, 127.0.0.1"}, "ip:198.51.100.7"},
	{ingress, "[::ffff:127.0.0.1]:80", []string{xff + "198.51.100.7, ::1"}, "ip:198.51.100.7"},
	{ingress, socket, []string{xff + "198.51.100.7, 10.244.9.9"}, "ip:198.51.100.7"},
	{ingress, "127.0.0.1:80", []string{xff + "198.51.100.7, unix:"}, "ip:127.0.0.1"},
	{ingress, "127.0.0.1:80", []string{"X-Original-Forwarded-For: 6.6.6.6", xff + "198.51.100.7"}, "ip:198.51.100.7"},

	// Google's balancer appends two addresses, and so do CloudFront and the ALB behind it.
	{ip(keyfunc.TrustedProxies("35.191.0.0/16", "34.120.0.1")), "35.191.0.1:5", []string{xff + "6.6.6.6, 198.51.100.7, 34.120.0.1"}, "ip:198.51.100.7"},
	{twoHops, proxy, []string{xff + "6.6.6.6, 198.51.100.7, 203.0.113.200"}, "ip:198.51.100.7"},

	// An IPv4 address that is written as an IPv6 address, with a port.
	{ours, proxy, []string{xff + "6.6.6.6, ::ffff:203.0.113.9:12345"}, "ip:203.0.113.9"},

	// Text in the header that is not an address.
	{ours, proxy, []string{xff + "203.0.113.9 "}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "203.0.113.9;10.9.9.9"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "6.6.6.6 203.0.113.9"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "203.0.113.9/32"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "::ffff:203.0.113.9/128"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "203.0.113.9:"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + ":443"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "[]:443"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "2001:db8:::9"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "http://203.0.113.9"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "for=203.0.113.9"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + "203.0.113.9\\"}, "ip:10.0.0.1"},
	{ours, proxy, []string{xff + `"6.6.6.6, 203.0.113.9`}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + strings.Repeat("a", 2000) + ", 203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + strings.Repeat("6.6.6.6,", 300) + "203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + strings.Repeat(",", 500) + "203.0.113.9"}, "ip:203.0.113.9"},
	{ours, proxy, []string{xff + "6.6.6.6" + strings.Repeat(", 10.9.9.9", 63)}, "ip:6.6.6.6"},
	{ours, proxy, []string{xff + "6.6.6.6" + strings.Repeat(", 10.9.9.9", 64)}, "ip:10.9.9.9"},

	// Headers of services, each with further headers that a client may add.
	{header("True-Client-IP"), proxy, []string{"True-Client-IP: 203.0.113.9", xff + "6.6.6.6"}, "ip:203.0.113.9"},
	{header("Fly-Client-IP"), proxy, []string{"Fly-Client-IP: 2001:db8::9", "True-Client-IP: 6.6.6.6"}, "ip:2001:db8::/64"},
	{header("Fastly-Client-IP"), proxy, []string{"Fastly-Client-IP: 203.0.113.9"}, "ip:203.0.113.9"},
	{header("X-Azure-SocketIP"), proxy, []string{"X-Azure-ClientIP: 6.6.6.6", "X-Azure-SocketIP: 203.0.113.9"}, "ip:203.0.113.9"},
	{header("X-Envoy-External-Address"), proxy, []string{"X-Envoy-External-Address: 203.0.113.9"}, "ip:203.0.113.9"},
	{header("X-Nf-Client-Connection-Ip"), proxy, []string{"X-NF-Client-Connection-IP: 203.0.113.9"}, "ip:203.0.113.9"},
	{header("CloudFront-Viewer-Address"), proxy, []string{"CloudFront-Viewer-Address: 203.0.113.9:46532"}, "ip:203.0.113.9"},
	{header("CloudFront-Viewer-Address"), proxy, []string{"CloudFront-Viewer-Address: 2001:db8:85a3:8d3:1319:8a2e:370:7348:46532"}, "ip:2001:db8:85a3:8d3::/64"},
	{header("CloudFront-Viewer-Address"), proxy, []string{"CloudFront-Viewer-Address: 2001:db8:f:abcd::9:49985"}, "ip:2001:db8:f:abcd::/64"},
	{ip(keyfunc.TrustedHeader("cloudfront-viewer-address"), keyfunc.IPv6Prefix(128)), proxy, []string{"CloudFront-Viewer-Address: 2001:db8:f:abcd::9:4998"}, "ip:2001:db8:f:abcd::9"},
	{header("CloudFront-Viewer-Address"), proxy, []string{"CloudFront-Viewer-Address: 2001:db8::9"}, "ip:10.0.0.1"},
	{header("CloudFront-Viewer-Address"), proxy, []string{"CloudFront-Viewer-Address: 2001:db8::9:"}, "ip:10.0.0.1"},
	{header("CloudFront-Viewer-Address"), proxy, []string{"CloudFront-Viewer-Address: 2001:db8::9:123456"}, "ip:10.0.0.1"},
	{header("DO-Connecting-IP"), proxy, []string{"X-Client-IP: 6.6.6.6"}, "ip:10.0.0.1"},
	{header("CF-Connecting-IP"), proxy, []string{"CF-Connecting-IP: 2001:db8:0:0:1:2:3:4", "CF-Connecting-IPv6: 2001:db8:6::1"}, "ip:2001:db8::/64"},
	{edgeHeader("X-Real-IP"), proxy, []string{"X-Real-IP: 203.0.113.9", xff + "6.6.6.6"}, "ip:203.0.113.9"},
	{edgeHeader("X-Real-IP"), direct, []string{"X-Real-IP: 6.6.6.6"}, "ip:203.0.113.9"},
	{edgeHeader("X-Real-IP"), socket, []string{"X-Real-IP: 6.6.6.6"}, "ip:unix"},
	{edgeHeader("X-Real-IP"), proxy, []string{"X-Real-IP: 203.0.113.9:4711"}, "ip:203.0.113.9"},

	// The header Forwarded, as in the examples of RFC 7239 and in similar forms.
	{standard, proxy, []string{fwd + `For="[2001:db8:cafe::17]:4711"`}, "ip:2001:db8:cafe::/64"},
	{standard, proxy, []string{fwd + "for=192.0.2.60;proto=http;by=203.0.113.43"}, "ip:192.0.2.60"},
	{standard, proxy, []string{fwd + `for=192.0.2.43, for="[2001:db8:cafe::17]"`}, "ip:2001:db8:cafe::/64"},
	{standard, proxy, []string{fwd + `for=_hidden, for=_SEVKISEK`}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + "for=192.0.2.43,for=198.51.100.17;by=203.0.113.60;proto=http;host=example.com"}, "ip:198.51.100.17"},
	{standard, proxy, []string{fwd + `for="192.0.2.43:_port"`}, "ip:192.0.2.43"},
	{standard, proxy, []string{fwd + `for="[2001:db8::9]:_p.1-x"`}, "ip:2001:db8::/64"},
	{standard, proxy, []string{fwd + `for="2001:db8::9:_p"`}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + `for="unknown:_p"`}, "ip:10.0.0.1"},
	{standard, proxy, []string{fwd + `for=6.6.6.6, for="192.0.2.43\:4711"`}, "ip:192.0.2.43"},
	{standard, proxy, []string{fwd + `for="\1\9\2.0.2.43"`}, "ip:192.0.2.43"},
	{standard, proxy, []string{fwd + "for=2001:db8::9"}, "ip:2001:db8::/64"},
	{standard, proxy, []string{fwd + "for =6.6.6.6, for=203.0.113.9"}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for=6.6.6.6, for=203.0.113.9, for="10.9.9.9:80";host="a,b"`}, "ip:203.0.113.9"},
	{standard, proxy, []string{fwd + `for="\"6.6.6.6", for=203.0.113.9`}, "ip:203.0.113.9"},
	{standard, socket, []string{fwd + "for=6.6.6.6"}, "ip:unix"},
	{hopsStd, proxy, []string{fwd + "for=6.6.6.6", fwd + "for=203.0.113.9", fwd + "for=198.51.100.7"}, "ip:203.0.113.9"},
	{hopsStd, proxy, []string{fwd + `for=203.0.113.9;x=", for=198.51.100.7`}, "ip:203.0.113.9"},
}
