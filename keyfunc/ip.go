package keyfunc

import "net/netip"

// ipv6Prefix is how much of an IPv6 address is one client: a site gets at least
// a /64 and can use any address in it (RFC 6177).
const ipv6Prefix = 64

// IP returns a Func that counts by the address of the connection's peer. No
// header is believed. An IPv6 client is its /64 network, and an IPv4 address
// written as IPv6 (::ffff:192.0.2.1) is the IPv4 address. Zones are dropped.
//
// A peer without an address, such as one on a unix socket, counts as "ip:unix":
// all such peers share one bucket.
//
// Behind a reverse proxy the peer is the proxy, and all its clients would share
// one bucket.
func IP() Func {
	return func(r Request) (string, error) { return addressKey("ip:", r.RemoteAddr()), nil }
}

// Peer returns a Func that counts by the peer's address as [IP] without options
// does, in buckets of their own ("peer:"). The middleware uses it for requests
// that carry no key, so that nobody escapes by leaving a credential out.
func Peer() Func {
	return func(r Request) (string, error) { return addressKey("peer:", r.RemoteAddr()), nil }
}

func addressKey(kind, remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	addr := ap.Addr()
	if err != nil {
		if addr, err = netip.ParseAddr(remote); err != nil {
			return kind + "unix"
		}
	}
	var room [64]byte
	key := append(room[:0], kind...)
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return string(addr.AppendTo(key))
	}
	network, _ := addr.Prefix(ipv6Prefix) // fails for lengths that no address has
	return string(network.AppendTo(key))
}
