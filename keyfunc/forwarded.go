package keyfunc

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxNode bounds the length, in bytes, of an address in a header. Any address with a port is shorter.
const maxNode = 64

// parseNode parses an address as proxies write it: with or without a port, and with or without brackets.
// For any other text, such as "unknown", it returns the zero Addr.
func parseNode(node string) netip.Addr {
	if len(node) > maxNode {
		return netip.Addr{}
	}
	if ap, err := netip.ParseAddrPort(node); err == nil {
		return clean(ap.Addr())
	}
	if inner, ok := strings.CutPrefix(node, "["); ok {
		if node, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(node, ":") {
			return netip.Addr{}
		}
	}
	addr, err := netip.ParseAddr(node)
	if err != nil && strings.Contains(node, ".") {
		return parseWithPort(node) // for example ::ffff:192.0.2.1:80
	}
	return clean(addr)
}

// parseWithPort parses an address with a port. An IPv6 address need not have brackets. Without a port,
// parseWithPort returns the zero Addr.
func parseWithPort(node string) netip.Addr {
	if len(node) > maxNode {
		return netip.Addr{}
	}
	if ap, err := netip.ParseAddrPort(node); err == nil {
		return clean(ap.Addr())
	}
	i := strings.LastIndexByte(node, ':')
	if i < 0 {
		return netip.Addr{}
	}
	if _, err := strconv.ParseUint(node[i+1:], 10, 16); err != nil {
		return netip.Addr{}
	}
	addr, _ := netip.ParseAddr(node[:i]) // the zero Addr if it is not an address
	return clean(addr)
}

// lastNode splits the last entry off a line of X-Forwarded-For.
func lastNode(line string) (rest, node string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", strings.TrimSpace(line), false
	}
	return line[:i], strings.TrimSpace(line[i+1:]), true
}

// lastElement splits the last element off a line of Forwarded and returns the value of its "for". It reads
// from the right: if a client sends a quote that is never closed, this spoils only the client's own
// elements, and not the elements that proxies appended.
func lastElement(line string) (rest, node string, more bool) {
	quoted := false
	for i := len(line) - 1; i >= 0; i-- {
		switch {
		case line[i] == '"' && !escaped(line, i):
			quoted = !quoted
		case line[i] == ',' && !quoted:
			return line[:i], forNode(line[i+1:]), true
		}
	}
	return "", forNode(line), false
}

// escaped reports whether line[i] is escaped by a backslash, which is not escaped itself.
func escaped(line string, i int) bool {
	n := 0
	for i--; i >= 0 && line[i] == '\\' && n <= maxNode; i-- {
		n++
	}
	return n%2 == 1
}

// forNode returns the value of "for" in an element of Forwarded. It returns "" unless there is exactly one
// "for".
func forNode(element string) string {
	var node string
	seen := false
	for rest, more := element, true; more; {
		var pair string
		pair, rest, more = cutUnquoted(rest, ';')
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "for") {
			continue
		}
		if seen {
			return ""
		}
		node, seen = withoutObfuscatedPort(unquote(strings.TrimSpace(value))), true
	}
	return node
}

// withoutObfuscatedPort removes a port such as ":_gazonk" (RFC 7239, section 6) from an IPv4 address, or
// from an IPv6 address in brackets.
func withoutObfuscatedPort(node string) string {
	addr, _, found := strings.Cut(node, ":_")
	if !found || strings.Contains(addr, ":") && !strings.HasSuffix(addr, "]") {
		return node
	}
	return addr
}

// cutUnquoted cuts s at the first sep outside quotes.
func cutUnquoted(s string, sep byte) (before, after string, found bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == sep && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// unquote returns a token unchanged. From a quoted string it removes the quotes and the backslashes of its
// quoted pairs (RFC 9110, section 5.6.4). The backslashes stay in a string that is too long for an address.
func unquote(value string) string {
	inner, quoted := strings.CutPrefix(value, `"`)
	if quoted {
		inner, quoted = strings.CutSuffix(inner, `"`)
	}
	switch {
	case !quoted:
		return value
	case len(inner) > 2*maxNode || !strings.Contains(inner, `\`):
		return inner
	}
	text := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		if inner[i] == '\\' && i+1 < len(inner) {
			i++
		}
		text = append(text, inner[i])
	}
	return string(text)
}
