package clientsuite

import (
	"slices"
	"strings"

	"github.com/redislimit/redislimit/keyfunc"
)

// A vector is the text of a request, a configuration, and the key that must result.
type vector struct {
	what      string
	f         keyfunc.Func
	peer      string
	raw       string
	want      string
	mayRefuse bool // a server may answer by 400, or hang up
}

// trailers are chunked requests whose trailer names a client or a credential. A proxy passes the trailer on after its own
// headers, and no adapter may trust it.
func (a Apps) trailers() []vector {
	var vectors []vector
	add := func(what string, f keyfunc.Func, header, trailer []string, want string) {
		refused := a.refuse(trailer)
		declared := append([]string{"Trailer: " + name(trailer)}, header...)
		vectors = append(vectors,
			vector{what, f, proxy, chunked("abc", header, trailer), want, refused},
			vector{what + ", no body", f, proxy, chunked("", header, trailer), want, refused},
			vector{what + ", twice", f, proxy, chunked("abc", header, append(trailer, trailer...)), want, refused},
			vector{what + ", lower case", f, proxy, chunked("abc", header, lower(trailer)), want, refused},
			vector{what + ", declared", f, proxy, chunked("abc", declared, trailer), want, refused},
			vector{what + ", in capitals", f, proxy, strings.Replace(chunked("abc", header, trailer), "chunked", "CHUNKED", 1), want, true},
			vector{what + ", GET", f, proxy, strings.Replace(chunked("abc", header, trailer), "POST", "GET", 1), want, refused},
			vector{what + ", lower case all", f, proxy, lowerNames(chunked("abc", header, trailer)), want, refused},
			vector{what + ", expecting", f, proxy, chunked("abc", append([]string{"Expect: 100-continue"}, header...), trailer), want, refused},
			vector{what + ", with a length", f, proxy, chunked("abc", append([]string{"Content-Length: 3"}, header...), trailer), want, true},
		)
	}
	forged := []string{xff + "6.6.6.6"}
	client := []string{xff + "203.0.113.9"}
	add("no option", plain, client, forged, "ip:10.0.0.1")
	add("TrustedProxies", ours, client, forged, "ip:203.0.113.9")
	add("TrustedProxies, two lines", ours, []string{xff + "6.6.6.6", xff + "203.0.113.9"}, forged, "ip:203.0.113.9")
	add("TrustedProxies, more proxies", ours, []string{xff + "6.6.6.6, 203.0.113.9, 10.9.9.9"}, []string{xff + "6.6.6.6, 10.9.9.9"}, "ip:203.0.113.9")
	add("TrustedProxies without the header", ours, nil, forged, "ip:10.0.0.1")
	add("TrustedHops", oneHop, client, forged, "ip:203.0.113.9")
	add("two TrustedHops", twoHops, []string{xff + "203.0.113.9, 198.51.100.7"}, forged, "ip:203.0.113.9")
	add("TrustedHops without the header", oneHop, nil, forged, "ip:10.0.0.1")
	add("Forwarded", standard, []string{fwd + "for=203.0.113.9"}, []string{fwd + "for=6.6.6.6"}, "ip:203.0.113.9")
	add("Forwarded, hops", hopsStd, []string{fwd + "for=203.0.113.9, for=198.51.100.7"}, []string{fwd + "for=6.6.6.6"}, "ip:203.0.113.9")
	add("Forwarded without the header", standard, nil, []string{fwd + "for=6.6.6.6"}, "ip:10.0.0.1")
	add("TrustedHeader", realIP, []string{"X-Real-IP: 203.0.113.9"}, []string{"X-Real-IP: 6.6.6.6"}, "ip:203.0.113.9")
	add("TrustedHeader without the header", realIP, nil, []string{"X-Real-IP: 6.6.6.6"}, "ip:10.0.0.1")
	add("TrustedHeader and TrustedProxies", edge, []string{"CF-Connecting-IP: 203.0.113.9"}, []string{"CF-Connecting-IP: 6.6.6.6"}, "ip:203.0.113.9")
	add("Header", keyfunc.Header("X-Tenant"), []string{"X-Tenant: acme"}, []string{"X-Tenant: globex"}, "header:X-Tenant:acme")
	add("Header without the header", keyfunc.Header("X-Tenant"), nil, []string{"X-Tenant: globex"}, "peer:10.0.0.1")
	add("APIKey", keyfunc.APIKey("X-API-Key"), []string{"X-API-Key: mine"}, []string{"X-API-Key: yours"}, keyfunc.ForAPIKey("mine"))
	add("APIKey without the header", keyfunc.APIKey("X-API-Key"), nil, []string{"X-API-Key: yours"}, "peer:10.0.0.1")
	add("APIKey, known", keyed, nil, []string{"X-API-Key: issued"}, "peer:10.0.0.1")
	add("Cookie", sessionCookie, []string{"Cookie: a=b; session=issued"}, []string{"Cookie: session=forged"}, cookie)
	add("Cookie, two lines", sessionCookie, []string{"Cookie: a=b", "Cookie: session=issued"}, []string{"Cookie: session=forged"}, cookie)
	add("Cookie without the header", sessionCookie, nil, []string{"Cookie: session=issued"}, "peer:10.0.0.1")
	add("Cookie without the name", sessionCookie, []string{"Cookie: a=b"}, []string{"Cookie: session=issued"}, "peer:10.0.0.1")
	add("FirstOf", keyfunc.FirstOf(keyed, ours), client, []string{"X-API-Key: issued", xff + "6.6.6.6"}, "ip:203.0.113.9")
	// fasthttp refuses trailers that HTTP forbids.
	for what, v := range map[string]struct {
		f       keyfunc.Func
		trailer string
	}{
		"Bearer":    {keyfunc.Bearer(), "Authorization: Bearer issued"},
		"BasicAuth": {keyfunc.BasicAuth(), "Authorization: Basic YWxpY2U6c2VjcmV0"},
	} {
		vectors = append(vectors, vector{what, v.f, proxy, chunked("abc", nil, []string{v.trailer}), "peer:10.0.0.1", true})
	}
	return vectors
}

// shapes are requests in unusual forms.
func (a Apps) shapes() []vector {
	get := func(header ...string) string { return plainRequest("GET /a", header...) }
	sent := xff + "203.0.113.9"
	many := append(slices.Repeat([]string{xff + "6.6.6.6"}, 50), sent)
	return []vector{
		{"a folded header", ours, proxy, get("X-Forwarded-For: 6.6.6.6,\r\n 203.0.113.9"), "ip:203.0.113.9", true},
		{"a folded header with a tab", ours, proxy, get("X-Forwarded-For:\r\n\t203.0.113.9"), "ip:203.0.113.9", true},
		{"a header folded before another", ours, proxy, get("X-Other: a\r\n b", sent), "ip:203.0.113.9", true},
		{"a space before the colon", ours, proxy, get(sent, "X-Forwarded-For : 6.6.6.6"), "ip:203.0.113.9", true},
		{"a tab before the colon", ours, proxy, get(sent, "X-Forwarded-For\t: 6.6.6.6"), "ip:203.0.113.9", true},
		{"a space before the name", ours, proxy, get("X-Other: a", " X-Forwarded-For: 6.6.6.6", sent), "ip:203.0.113.9", true},
		{"no space after the colon", ours, proxy, get("X-Forwarded-For:203.0.113.9"), "ip:203.0.113.9", false},
		{"spaces around", ours, proxy, get("X-Forwarded-For: \t 203.0.113.9 \t "), "ip:203.0.113.9", false},
		{"bare line feeds", ours, proxy, strings.ReplaceAll(get("X-Forwarded-For: 6.6.6.6", sent), "\r\n", "\n") + "\r\n\r\n", "ip:203.0.113.9", true},
		{"a bare carriage return", ours, proxy, get("X-Other: a\rX-Forwarded-For: 6.6.6.6", sent), "ip:203.0.113.9", true},
		{"a NUL in the name", ours, proxy, get(sent, "X-Forwarded-For\x00: 6.6.6.6"), "ip:203.0.113.9", true},
		{"a NUL in the value", ours, proxy, get("X-Forwarded-For: 6.6.6.6\x00, 203.0.113.9"), "ip:203.0.113.9", true},
		{"a byte above ASCII", ours, proxy, get("X-Forwarded-For: \xff, 203.0.113.9"), "ip:203.0.113.9", true},
		{"underscores", ours, proxy, get(sent, "X_Forwarded_For: 6.6.6.6"), "ip:203.0.113.9", false},
		{"lower case", ours, proxy, get("x-forwarded-for: 203.0.113.9"), "ip:203.0.113.9", false},
		{"capitals", ours, proxy, get("X-FORWARDED-FOR: 203.0.113.9"), "ip:203.0.113.9", false},
		{"several cases", ours, proxy, get("X-FORWARDED-FOR: 6.6.6.6", "x-forwarded-for: 6.6.6.7", "X-Forwarded-For: 203.0.113.9"), "ip:203.0.113.9", false},
		{"several cases, lower last", ours, proxy, get("X-Forwarded-For: 6.6.6.6", "X-FORWARDED-FOR: 6.6.6.7", "x-forwarded-for: 203.0.113.9"), "ip:203.0.113.9", false},
		{"two cases of one header", realIP, proxy, get("X-Real-IP: 6.6.6.6", "x-real-ip: 203.0.113.9"), "ip:10.0.0.1", false},
		{"an API key in lower case", keyed, direct, get("x-api-key: issued"), keyfunc.ForAPIKey("issued"), false},
		{"a cookie in lower case", sessionCookie, direct, get("cookie: session=issued"), cookie, false},
		{"cookies in several cases", sessionCookie, direct, get("COOKIE: a=b", "cookie: session=issued"), cookie, false},
		{"two cookies of a name", sessionCookie, direct, get("Cookie: session=issued; session=forged"), cookie, false},
		{"two lines of cookies", sessionCookie, direct, get("Cookie: session=issued", "Cookie: session=forged"), cookie, false},
		{"a quoted cookie", sessionCookie, direct, get(`Cookie: session="issued"`), cookie, false},
		{"many lines", ours, proxy, get(many...), "ip:203.0.113.9", false},
		{"a long line", ours, proxy, get(xff + strings.Repeat("6.6.6.6, ", 200) + "203.0.113.9"), "ip:203.0.113.9", false},
		{"a target with a host", ours, proxy, plainRequest("GET http://6.6.6.6/a", sent), "ip:203.0.113.9", false},
		{"a second Host", ours, proxy, get("Host: 6.6.6.6", sent), "ip:203.0.113.9", true},
		{"a Host that is an address", plain, direct, strings.Replace(get(), "example.com", "6.6.6.6", 1), "ip:203.0.113.9", false},
		{"a method in a header", ours, proxy, get("X-HTTP-Method-Override: DELETE", "X-Original-Forwarded-For: 6.6.6.6", sent), "ip:203.0.113.9", false},
		{"an empty body", ours, proxy, plainRequest("POST /a", "Content-Length: 0", sent), "ip:203.0.113.9", false},
		{"HTTP/1.0", ours, proxy, strings.Replace(get(sent), "HTTP/1.1", "HTTP/1.0", 1), "ip:203.0.113.9", false},
		{"named in Connection", ours, proxy, get("Connection: X-Forwarded-For", sent), "ip:203.0.113.9", false},
		{"a body that looks like a header", ours, proxy, plainRequest("POST /a", "Content-Length: 26", sent) + "X-Forwarded-For: 6.6.6.6\r\n", "ip:203.0.113.9", false},
		{"a chunk that looks like a header", ours, proxy, chunked("\r\nX-Forwarded-For: 6.6.6.6\r\n", []string{sent}, nil), "ip:203.0.113.9", false},
		{"an extension of a chunk", ours, proxy, strings.Replace(chunked("abc", []string{sent}, nil), "3\r\n", "3;X-Forwarded-For=6.6.6.6\r\n", 1), "ip:203.0.113.9", true},
		{"a folded trailer", ours, proxy, chunked("abc", []string{sent}, []string{"X-Other: a", " X-Forwarded-For: 6.6.6.6"}), "ip:203.0.113.9", true},
		{"a trailer without chunks", ours, proxy, plainRequest("POST /a", "Trailer: X-Forwarded-For", "Content-Length: 3", sent) + "abc", "ip:203.0.113.9", a.refuse([]string{xff})},
	}
}

// name returns the name of the first line.
func name(lines []string) string {
	name, _, _ := strings.Cut(lines[0], ":")
	return name
}

// lower returns lines with their names in lower case.
func lower(lines []string) []string {
	var all []string
	for _, line := range lines {
		if name, value, ok := strings.Cut(line, ":"); ok {
			line = strings.ToLower(name) + ":" + value
		}
		all = append(all, line)
	}
	return all
}

// lowerNames returns a request with the names of all headers in lower case, as HTTP/2
// proxies write it.
func lowerNames(raw string) string {
	start, rest, _ := strings.Cut(raw, "\r\n")
	return start + "\r\n" + strings.Join(lower(strings.Split(rest, "\r\n")), "\r\n")
}
