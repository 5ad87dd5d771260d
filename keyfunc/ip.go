package keyfunc

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// IP returns a Func that counts by the client's address.
//
// By default this is the address of the connection's peer, and no header is trusted. Behind a reverse proxy
// the peer is the proxy, so all clients of the proxy would be counted as one. These options say which
// header to trust:
//
//   - [TrustedProxies]: you know the addresses of your proxies; read X-Forwarded-For
//   - [TrustedHops]: you know only how many addresses your proxies append; read X-Forwarded-For
//   - [TrustedHeader]: your edge sets one header, such as CF-Connecting-IP
//   - [Forwarded]: with the first two, read the header of RFC 7239 instead of X-Forwarded-For
//
// IPv6 addresses of one /64 network are counted together; see [IPv6Prefix]. An IPv4 address written as IPv6
// (::ffff:192.0.2.1, or 64:ff9b::192.0.2.1 behind NAT64) is counted as the IPv4 address. If your NAT64 uses
// another prefix, all IPv4 clients are in one /64 network: then use IPv6Prefix(128). The zone of an IPv6
// address is dropped. All peers without an address, such as those on a unix socket, are counted together as
// "ip:unix".
//
// X-Forwarded-For and Forwarded are read from right to left. If an entry is not an address, reading
// stops there. The client's address is then the entry to its right, or the peer's address if there is
// no entry to its right.
//
// IP logs one warning if requests seem to come through a proxy that no option names:
//
//   - No option says which header to trust, and a peer with a private address sends X-Forwarded-For
//     or Forwarded. (A proxy with a public address cannot be told from a client.)
//   - A peer sends one of these headers, or the header that the options read, but [TrustedProxies] does
//     not name the peer.
//   - A peer sends one of these headers, but not the header that the options read.
//   - The header has fewer addresses than TrustedHops.
//   - A trusted proxy has written an entry that is not an address, or the header of TrustedHeader is not
//     one address.
//   - The address that counts as the client's is private, although another address stands to its
//     left in the header: it is perhaps the address of a proxy that the options do not cover.
//
// IP logs another warning if the peer's address has no port, or is text that no server writes there: a
// middleware such as chi's RealIP has then replaced the address by the value of a header, which clients
// can choose. Remove that middleware, and give IP the options above. With [TrustedHops], or with
// [TrustedHeader] but not TrustedProxies, IP does not log this, because it takes the client from a header.
// [LoggingRequest] says where the warnings are logged.
func IP(opts ...IPOption) Func {
	c := newIPConfig(opts)
	return func(r Request) (string, error) { return c.key("ip:", c.clientOf(r)), nil }
}

// ForIP returns the key under which [IP], with the same options, counts the client addr. Use it for Peek
// and Reset without a request. It panics if addr is the zero Addr, which [netip.ParseAddr] returns together
// with an error.
func ForIP(addr netip.Addr, opts ...IPOption) string {
	mustAddr("ForIP", "ip:", addr)
	return newIPConfig(opts).key("ip:", clean(addr))
}

// Peer returns a Func that counts by the address of the connection's peer, as [IP] without options does,
// but under keys that begin with "peer:". The middleware uses Peer for requests without a key, so that a
// client cannot avoid the limit by leaving out a credential. Peer logs the same warnings as IP.
func Peer() Func {
	c := newIPConfig(nil)
	c.warning.forPeer = true
	return func(r Request) (string, error) { return c.key("peer:", c.clientOf(r)), nil }
}

// ForPeer returns the key under which [Peer] counts the peer addr. Use it for Peek and Reset without a
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

// An IPOption adjusts [IP]: it says how many leading bits of an address identify a client, or which
// proxies are trusted. The functions that return IPOptions panic at once if their argument is wrong.
type IPOption interface{ applyTo(c *ipConfig) }

// An ipOption is the IPOption that a function applies.
type ipOption func(c *ipConfig)

func (o ipOption) applyTo(c *ipConfig) { o(c) }

// IPv6Prefix sets how many leading bits of an IPv6 address identify a client, from 1 to 128:
// addresses with the same leading bits are counted together. The default is 64, because a site gets
// at least a /64 network and can use any address in it (RFC 6177).
func IPv6Prefix(bits int) IPOption {
	mustBits("IPv6Prefix", bits, 128)
	return ipOption(func(c *ipConfig) {
		mustOnce("IPv6Prefix", c.bits6 > 0)
		c.bits6 = bits
	})
}

// IPv4Prefix sets how many leading bits of an IPv4 address identify a client, from 1 to 32:
// addresses with the same leading bits are counted together. The default is 32, so that each
// address is counted separately.
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

// mustOnce panics if an option is given twice: the first one would have no effect.
func mustOnce(option string, again bool) {
	if again {
		panic("keyfunc: " + option + " and " + option + ": give it once")
	}
}

// An ipConfig is the sum of the options of an IP: which address of a request is the client's, and how many
// bits of the address count.
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

// clientOf returns the client's address, or the zero Addr if the client is a peer without an address, such as
// one on a unix socket. If a middleware has overwritten the peer's address with text that is not an address,
// and the options use the peer, clientOf also returns the zero Addr and reads no header: nobody knows whether
// such a peer is the proxy that "unix" names.
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

// key returns the key for addr, or for its network if the options count networks.
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
	network, _ := addr.Prefix(bits) // an error is impossible: bits is not longer than the address
	return string(network.AppendTo(key))
}

// parsePeer parses the address of a connection's other end. A server writes an address with its port. For a
// unix socket it writes a path, "@" and a name, or nothing, and for a connection within the process a word
// such as "pipe". Any other text was written by a middleware: overwritten is then true.
func parsePeer(remote string) (addr netip.Addr, overwritten bool) {
	if ap, err := netip.ParseAddrPort(remote); err == nil {
		return clean(ap.Addr()), false
	}
	if strings.HasPrefix(remote, "/") || strings.HasPrefix(remote, "@") || !strings.ContainsAny(remote, ".:,") {
		return netip.Addr{}, false
	}
	addr, _ = netip.ParseAddr(remote) // the zero Addr if it is not an address
	return clean(addr), true
}

// nat64 is the prefix of IPv4 addresses behind NAT64 and SIIT-DC (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// clean returns the same Addr for all ways to write an address. The prefix of NAT64 has no private
// addresses (RFC 6052, section 3.1). An address there that seems to contain a private one is left
// unchanged, so that it is not taken for a proxy.
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
