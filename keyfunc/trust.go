package keyfunc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The widest ranges that can be trusted are as wide as the largest private networks, 10.0.0.0/8 and
// fc00::/7.
const (
	widest4 = 8
	widest6 = 7
)

// maxHops bounds how many proxies are followed, so that a header of any length takes bounded time. No real
// request passes more proxies.
const maxHops = 64

// TrustedProxies names the proxies in front of the service: by address ("192.0.2.1"), by range
// ("10.0.0.0/8"), or as "unix" for proxies that connect by unix socket. If the peer is one of these
// proxies, X-Forwarded-For is read from right to left, over all its lines. The first address that
// is not the address of a trusted proxy is the client's. If all are addresses of trusted proxies,
// the leftmost is taken for the client's.
//
// It panics if no proxy is given, and on text of any other form. For example, "10.0.0.5/8" could mean
// one address or the whole range. It also panics on a range wider than /8
// (IPv6: /7), because a client in a trusted range can choose the address that it is counted by. For
// proxies that are read from a configuration, use [ParseProxies].
func TrustedProxies(proxies ...string) IPOption {
	option, err := parseProxies("TrustedProxies", proxies)
	if err != nil {
		panic(err.Error())
	}
	return option
}

// ParseProxies is [TrustedProxies] for proxies that are read from a configuration: it returns an
// error where TrustedProxies panics.
func ParseProxies(proxies ...string) (IPOption, error) { return parseProxies("ParseProxies", proxies) }

func parseProxies(function string, proxies []string) (IPOption, error) {
	if len(proxies) == 0 {
		return nil, fmt.Errorf(`keyfunc: %s(): want at least one address or range, such as "10.0.0.0/8", or "unix"`, function)
	}
	var ranges []netip.Prefix
	unix := false
	for _, proxy := range proxies {
		if proxy == "unix" {
			unix = true
			continue
		}
		prefix, err := parseProxy(proxy)
		if err != nil {
			return nil, fmt.Errorf("keyfunc: %s(%q): %w", function, proxy, err)
		}
		ranges = append(ranges, prefix)
	}
	return ipOption(func(c *ipConfig) {
		c.trust.ranges = append(c.trust.ranges, ranges...)
		c.trust.unix = c.trust.unix || unix
	}), nil
}

// parseProxy parses an address or a range.
func parseProxy(proxy string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(proxy)
	if err == nil && prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("the address is not the first of its range: want %q for the one address, or %q for the range",
			prefix.Addr(), prefix.Masked())
	}
	if err != nil {
		addr, err := netip.ParseAddr(proxy)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, errors.New(`want an address or a range, such as "10.0.0.0/8", or "unix"`)
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if inner := clean(prefix.Addr()); inner.Is4() && prefix.Addr().Is6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(inner, prefix.Bits()-96)
	}
	widest := widest6
	if prefix.Addr().Is4() {
		widest = widest4
	}
	if prefix.Bits() < widest {
		return netip.Prefix{}, fmt.Errorf("a range this wide trusts clients too, who could then choose the address "+
			"that they are counted by: allowed are ranges of /%d and longer; name the addresses of your own proxies", widest)
	}
	return prefix, nil
}

// TrustedHops is for proxies whose addresses you do not know. It says that they append n addresses
// to the X-Forwarded-For of every request, usually one address for each proxy that the request
// passes. n is from 1 to 64. The client is the nth address from the right, or the leftmost if there
// are fewer. Make sure that no client can bypass any of the proxies: otherwise it can choose the
// address that it is counted by.
func TrustedHops(n int) IPOption {
	if n < 1 || n > maxHops {
		panic(fmt.Sprintf("keyfunc: TrustedHops(%d): allowed is 1 to %d", n, maxHops))
	}
	return ipOption(func(c *ipConfig) {
		mustOnce("TrustedHops", c.trust.hops > 0)
		c.trust.hops = n
	})
}

// TrustedHeader says that your own edge writes the client's address into the header called name, and
// overwrites whatever the client sent there. Examples are "CF-Connecting-IP" behind Cloudflare,
// "CloudFront-Viewer-Address" behind CloudFront, and "X-Real-IP" behind an nginx that sets it. With
// [TrustedProxies], the header is trusted only if the peer is one of those proxies. Without TrustedProxies,
// make sure that nothing but the edge can reach the service. If the header is missing, comes twice or is not
// an address, the request is counted by its peer's address. X-Forwarded-For and Forwarded are refused: use
// [TrustedProxies] or [TrustedHops], which read them.
func TrustedHeader(name string) IPOption {
	mustHeader("TrustedHeader", name, "X-Real-IP")
	switch {
	case strings.EqualFold(name, "X-Forwarded-For"):
		panic("keyfunc: TrustedHeader(\"" + name + "\"): proxies append to this header what clients sent: use TrustedProxies or TrustedHops, which read it")
	case strings.EqualFold(name, "Forwarded"):
		panic("keyfunc: TrustedHeader(\"" + name + "\"): proxies append to this header what clients sent: " +
			"use Forwarded() with TrustedProxies or TrustedHops")
	}
	return ipOption(func(c *ipConfig) {
		mustOnce("TrustedHeader", c.trust.header != "")
		c.trust.header = name
	})
}

// Forwarded reads the header Forwarded (RFC 7239) instead of X-Forwarded-For. It needs
// TrustedProxies or TrustedHops.
func Forwarded() IPOption {
	return ipOption(func(c *ipConfig) { c.trust.forwarded = true })
}

// A trust says which peers and headers are trusted to name the client's address.
type trust struct {
	ranges    []netip.Prefix
	unix      bool
	hops      int
	header    string
	forwarded bool
}

func (t *trust) none() bool { return !t.hasProxies() && t.hops == 0 && t.header == "" }

// usesPeer reports whether the peer's address is the client's, or decides whether a header is trusted. Other
// options use the peer's address only if the header does not name the client.
func (t *trust) usesPeer() bool { return t.none() || t.hasProxies() }

func (t *trust) hasProxies() bool { return len(t.ranges) > 0 || t.unix }

func (t *trust) check() {
	switch {
	case t.hops > 0 && t.hasProxies():
		panic("keyfunc: IP: TrustedHops and TrustedProxies: choose one")
	case t.hops > 0 && t.header != "":
		panic("keyfunc: IP: TrustedHops and TrustedHeader: choose one")
	case t.forwarded && t.header != "":
		panic("keyfunc: IP: Forwarded and TrustedHeader: choose one")
	case t.forwarded && t.none():
		panic("keyfunc: IP: Forwarded needs TrustedProxies or TrustedHops: without them it is not trusted")
	}
}

func (t *trust) trusts(addr netip.Addr) bool {
	if !addr.IsValid() {
		return t.unix
	}
	for _, r := range t.ranges {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}

// reads returns the name of the header from which the client's address is read.
func (t *trust) reads() string {
	switch {
	case t.header != "":
		return t.header
	case t.forwarded:
		return "Forwarded"
	}
	return "X-Forwarded-For"
}

// A doubt says why an address may not be the client's.
type doubt uint8

const (
	noDoubt      doubt = iota
	notNamed           // it is the peer's address, because no trusted header names the client
	tooFew             // the header has fewer addresses than TrustedHops
	privateProxy       // it is private, and stands behind another address
	notAddress         // a trusted proxy wrote an entry that is not an address
)

// clientOf returns the client's address of r, whose peer is remote, and whether there is a doubt.
func (t *trust) clientOf(r Request, remote netip.Addr) (netip.Addr, doubt) {
	if t.none() || t.hasProxies() && !t.trusts(remote) {
		return remote, notNamed
	}
	lines := r.HeaderValues(t.reads())
	switch {
	case len(lines) == 0:
		return remote, notNamed
	case t.header == "":
		return t.walk(lines, remote)
	case len(lines) == 1:
		if addr := t.parseHeader(strings.TrimSpace(lines[0])); addr.IsValid() {
			return addr, noDoubt
		}
	}
	return remote, notAddress
}

// parseHeader parses the value of the header that TrustedHeader names. CloudFront always adds a port, and
// writes an IPv6 address without brackets.
func (t *trust) parseHeader(value string) netip.Addr {
	if strings.EqualFold(t.header, "CloudFront-Viewer-Address") {
		return parseWithPort(value)
	}
	return parseNode(value)
}

// walk reads the addresses in the header from right to left, from the nearest proxy on, while they are
// trusted. Existing libraries could not be used: they take an http.Header, which not every framework has.
// They also read Forwarded from the left, so that a quote which the client never closes hides the entries
// of the proxies.
func (t *trust) walk(lines []string, remote netip.Addr) (netip.Addr, doubt) {
	next := lastNode
	if t.forwarded {
		next = lastElement
	}
	limit := maxHops
	if t.hops > 0 {
		limit = t.hops
	}
	client, hop := remote, 0
	for i, line := range slices.Backward(lines) {
		for rest, more := line, true; more; hop++ {
			var node string
			rest, node, more = next(rest)
			addr := parseNode(node)
			switch {
			case hop == limit: // first, because a client can write anything in front of what the proxies wrote
				return client, doubtOf(client, t.hops > 0)
			case !addr.IsValid():
				return client, notAddress
			case t.hops == 0 && !t.trusts(addr):
				return addr, doubtOf(addr, more || i > 0)
			}
			client = addr
		}
	}
	if hop < t.hops {
		return client, tooFew
	}
	return client, noDoubt
}

// doubtOf returns whether there is a doubt about a client. behind says whether the client's address stands
// behind another address.
func doubtOf(client netip.Addr, behind bool) doubt {
	if behind && proxyLike(client) {
		return privateProxy
	}
	return noDoubt
}
