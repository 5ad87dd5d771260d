package clientsuite

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/proxytest"
	"github.com/redislimit/redislimit/keyfunc"
)

// realProxies makes clients forge what they can in front of a real HAProxy and nginx: headers, and the trailer of a chunked
// body, which HAProxy passes on. Each request must be counted by the address that the proxy adds, in every configuration of
// every framework.
func realProxies(t *testing.T, apps Apps) {
	const client = "127.0.0.77"
	dialer := dialerFrom(t, client)
	behind := keyfunc.TrustedProxies("127.0.0.1")
	forged := []string{
		xff + "6.6.6.6", fwd + "for=6.6.6.6", "X-Real-IP: 6.6.6.6", "X-Tenant: globex", "X-API-Key: issued", "CF-Connecting-IP: 6.6.6.6",
		"Cookie: session=issued",
	}
	var accepted []string
	for _, line := range forged {
		if !apps.refuse([]string{line}) {
			accepted = append(accepted, line)
		}
	}
	for _, kind := range proxytest.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			var names, backends []string
			keys := map[string]*keySwitch{}
			c := newCounter(t)
			for name, newApp := range apps.all() {
				keys[name] = &keySwitch{}
				names, backends = append(names, name), append(backends, listenTCP(t, newApp(c.lim, keys[name].key)))
			}
			for i, address := range kind.Start(t, backends...) {
				for _, option := range []struct {
					name, want string
					key        keyfunc.Func
				}{
					{"no option", "ip:127.0.0.1", plain},
					{"TrustedProxies", "ip:" + client, ip(behind)},
					{"TrustedHops", "ip:" + client, oneHop},
					{"Forwarded", "ip:" + client, ip(behind, keyfunc.Forwarded())},
					{"Forwarded, hops", "ip:" + client, ip(keyfunc.TrustedHops(1), keyfunc.Forwarded())},
					{"TrustedHeader", "ip:" + client, realIP},
					{"TrustedHeader and TrustedProxies", "ip:" + client, ip(behind, keyfunc.TrustedHeader("X-Real-IP"))},
					{"Header", "header:X-Tenant:" + proxytest.Tenant, keyfunc.Header("X-Tenant")},
					{"APIKey", "peer:127.0.0.1", keyed},
				} {
					keys[names[i]].use(option.key)
					for what, raw := range map[string]string{
						"headers":              plainRequest("GET /a", forged...),
						"headers, lower case":  plainRequest("GET /a", lower(forged)...),
						"trailer":              chunked("abc", nil, accepted),
						"trailer, lower case":  chunked("abc", nil, lower(accepted)),
						"headers and trailer":  chunked("abc", forged, accepted),
						"trailer, empty body":  chunked("", nil, accepted),
						"trailer in a GET":     "GET" + chunked("abc", nil, accepted)[len("POST"):],
						"twice in the headers": plainRequest("GET /a", slices.Concat(forged, forged)...),
					} {
						c.counts(names[i]+", "+option.name+", "+what, option.want, false, func() int { return c.sendFrom(dialer, address, raw) })
					}
					c.counts(names[i]+", "+option.name+", whole trailer", option.want, apps.refuse(forged), func() int {
						return c.sendFrom(dialer, address, chunked("abc", nil, forged))
					})
				}
				keys[names[i]].use(sessionCookie)
				for what, raw := range map[string]string{
					"trailer": chunked("abc", nil, forged), "trailer and another": chunked("abc", []string{"Cookie: a=b"}, forged),
				} {
					c.counts(names[i]+", Cookie, "+what, "peer:127.0.0.1", apps.refuse(forged), func() int { return c.sendFrom(dialer, address, raw) })
				}
			}
		})
	}
}

// dialerFrom returns a dialer whose connections come from address, on the loopback.
func dialerFrom(t *testing.T, address string) net.Dialer {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil { // only on Linux the loopback has all addresses of 127.0.0.0/8
		t.Skip("needs more loopback addresses: ", err)
	}
	_ = l.Close()
	return net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: AnswerLimit}
}

// listenTCP serves a until the test ends, and returns its address.
func listenTCP(t *testing.T, a App) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen(t, a, l)
	return l.Addr().String()
}

// dialFrom returns a connection to address. It ends the test if the connection fails.
func dialFrom(t *testing.T, dialer net.Dialer, address string) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), AnswerLimit)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return newConn(conn)
}

// sendFrom sends a request over a connection of its own, and returns the status of the response.
func (c counter) sendFrom(dialer net.Dialer, address, raw string) int {
	c.Helper()
	client := dialFrom(c.T, dialer, address)
	defer client.Close()
	return client.Send(raw)
}
