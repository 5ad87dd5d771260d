package keyfunc

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// IP returns a Func that counts by the client's address: by default that of the connection's peer.
// No header is trusted unless an option says so: behind a reverse proxy the peer is the proxy, and
// all its clients would be counted as one.
//
//   - [TrustedProxies]: proxies whose addresses you know, read from X-Forwarded-For
//   - [TrustedHops]: a number of proxies whose addresses you do not know
//   - [TrustedHeader]: one header that your own edge sets, such as CF-Connecting-IP
//   - [Forwarded]: with the first two, RFC 7239 instead of X-Forwarded-For
//
// IPv6 addresses of one /64 network are counted together, see [IPv6Prefix]. An IPv4 address written
// as IPv6 (::ffff:192.0.2.1, or 64:ff9b::192.0.2.1 of NAT64) is counted as the IPv4 address. With
// another prefix of NAT64 all IPv4 clients are in one /64 network: give IPv6Prefix(128) then. Zones
// are dropped. Peers without an address, such as those on a unix socket, are all counted as
// "ip:unix".
//
// If a header entry is not an address, reading stops and the last trusted address is the client's.
// One warning is logged if requests seem to come through a proxy that no option names: a private
// peer, or with [TrustedProxies] any other one, sends X-Forwarded-For or Forwarded; or these come,
// and the header that the options read does not; or that header has fewer addresses than TrustedHops,
// or what a trusted proxy wrote is not an address, or a private address that stands behind another
// one is taken for the client. Another warning is logged if the peer's address has no port, or is no
// address: then a middleware such as chi's RealIP has overwritten it by a header that clients can choose. Remove that
// middleware, and give IP the options. See [LoggingRequest].
func IP(opts ...IPOption) Func {
	c := newIPConfig(opts)
	return func(r Request) (string, error) { return c.key("ip:", c.clientOf(r)), nil }
}

// ForIP returns the key under which [IP], with the same options, counts the client addr: for Peek
// and Reset without a request. It panics if addr is the zero Addr, which [netip.ParseAddr] returns
// for what is not an address.
func ForIP(addr netip.Addr, opts ...IPOption) string {
	mustAddr("ForIP", "ip:", addr)
	return newIPConfig(opts).key("ip:", clean(addr))
}

// Peer returns a Func that counts by the peer's address as [IP] without options does, under keys
// that begin with "peer:". The middleware uses it for requests without a key, so that leaving out a
// credential does not avoid the limit. It logs the same warning as IP.
func Peer() Func {
	c := newIPConfig(nil)
	c.warning.forPeer = true
	return func(r Request) (string, error) { return c.key("peer:", c.clientOf(r)), nil }
}

// ForPeer returns the key under which [Peer] counts the peer addr: for Peek and Reset without a
// request. It panics if addr is the zero Addr.
func ForPeer(addr netip.Addr) string {
	mustAddr("ForPeer", "peer:", addr)
	return newIPConfig(nil).key("peer:", clean(addr))
}

func mustAddr(f, kind string, addr netip.Addr) {
	if !addr.IsValid() {
		panic("keyfunc: " + f + ": the zero Addr: check the error of netip.ParseAddr; the key of peers without an address, " +
			`such as those on a unix socket, is "` + kind + `unix"`)
	}
}

// An IPOption adjusts [IP]: how many bits of an address are one client, and which proxies are trusted.
// The functions that return IPOptions panic at once if their argument is wrong.
type IPOption interface{ applyTo(c *ipConfig) }

// An ipOption is the IPOption that a function applies.
type ipOption func(c *ipConfig)

func (o ipOption) applyTo(c *ipConfig) { o(c) }

// IPv6Prefix sets how many bits of an IPv6 address are one client, from 1 to 128. The default is
// 64: a site gets at least a /64 and can use any address in it (RFC 6177).
func IPv6Prefix(bits int) IPOption {
	mustBits("IPv6Prefix", bits, 128)
	return ipOption(func(c *ipConfig) {
		mustOnce("IPv6Prefix", c.bits6 > 0)
		c.bits6 = bits
	})
}

// IPv4Prefix sets how many bits of an IPv4 address are one client, from 1 to 32. The default is 32,
// a single address.
func IPv4Prefix(bits int) IPOption {
	mustBits("IPv4Prefix", bits, 32)
	return ipOption(func(c *ipConfig) {
		mustOnce("IPv4Prefix", c.bits4 > 0)
		c.bits4 = bits
	})
}

func mustBits(option string, bits, most int) {
	if bits < 1 || bits > most {
		panic(fmt.Sprintf("keyfunc: %s(%d): allowed is 1 to %d", option, bits, most))
	}
}

// mustOnce panics if an option is given again: the first would be without effect.
func mustOnce(option string, again bool) {
	if again {
		panic("keyfunc: " + option + " and " + option + ": give it once")
	}
}

// An ipConfig is what the options of an IP add up to: which address of a request is the client's,
// and how many of its bits count.
type ipConfig struct {
	bits4, bits6 int
	trust        trust
	warning      proxyWarning
}

func newIPConfig(opts []IPOption) *ipConfig {
	c := &ipConfig{}
	for _, opt := range opts {
		if opt == nil {
			panic("keyfunc: IP: a nil IPOption: leave it out")
		}
		opt.applyTo(c)
	}
	c.trust.check()
	c.bits4, c.bits6 = cmp.Or(c.bits4, 32), cmp.Or(c.bits6, 64)
	return c
}

// clientOf returns the client's address. The zero Addr is that of a unix socket, or of a peer whose
// address was overwritten by what is no address: such a peer is no proxy that "unix" names.
func (c *ipConfig) clientOf(r Request) netip.Addr {
	remote, overwritten := parsePeer(r.RemoteAddr())
	if overwritten && c.trust.usesPeer() {
		c.warning.overwritten(r)
		if !remote.IsValid() {
			return remote
		}
	}
	client, doubt := c.trust.clientOf(r, remote)
	switch {
	case overwritten && c.trust.usesPeer():
	case doubt != noDoubt:
		c.warning.check(r, remote, doubt, &c.trust)
	}
	return client
}

// key returns the key of addr, or of its network.
func (c *ipConfig) key(kind string, addr netip.Addr) string {
	if !addr.IsValid() {
		return kind + "unix"
	}
	var buffer [64]byte
	key := append(buffer[:0], kind...)
	bits := c.bits6
	if addr.Is4() {
		bits = c.bits4
	}
	if bits == addr.BitLen() {
		return string(addr.AppendTo(key))
	}
	network, _ := addr.Prefix(bits) // fails for lengths that no address has
	return string(network.AppendTo(key))
}

// parsePeer reads the address of a connection's other end. A server writes an address with its port.
// The peer on a unix socket has a path, "@" and a name, or nothing, and one in this process a word such
// as "pipe". Anything else has overwritten what the server wrote.
func parsePeer(remote string) (addr netip.Addr, overwritten bool) {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return clean(ap.Addr()), false
	}
	if strings.HasPrefix(remote, "/") || strings.HasPrefix(remote, "@") || !strings.ContainsAny(remote, ".:,") {
		return netip.Addr{}, false
	}
	addr, _ = netip.ParseAddr(remote) // the zero Addr if there is none
	return clean(addr), true
}

// nat64 is the prefix of IPv4 addresses behind NAT64 and SIIT-DC (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// clean returns the same address for all ways to write it. In the prefix of NAT64 there are no
// private addresses (RFC 6052, section 3.1): what looks like one is left as it is, so that it is
// not taken for a proxy.
func clean(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return addr
	}
	addr = addr.Unmap().WithZone("")
	if !nat64.Contains(addr) {
		return addr
	}
	bytes := addr.As16()
	if inner := netip.AddrFrom4([4]byte(bytes[12:])); !proxyLike(inner) {
		return inner
	}
	return addr
}
