package keyfunc

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// Header returns a Func that counts by the value of the header called name, such as a tenant that
// your gateway sets. The value is part of the key in Redis: for credentials use [APIKey]. A client
// can send any value: mount the middleware where the header has been verified, or put a limiter by
// [IP] in front. Headers with an address, such as X-Forwarded-For, are refused, and so are those of
// credentials, such as Authorization, Cookie and X-API-Key.
func Header(name string) Func {
	kind := headerKind("Header", name)
	return func(r Request) (string, error) {
		value := r.Header(name)
		if value == "" {
			return "", ErrNoKey
		}
		return kind + value, nil
	}
}

// ForHeader returns the key under which [Header] of this name counts the value: for Peek and Reset
// without a request.
func ForHeader(name, value string) string { return headerKind("ForHeader", name) + value }

func headerKind(f, name string) string {
	mustHeader(f, name, "X-Tenant")
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch {
	case name == "X-Forwarded-For", name == "Forwarded":
		panic(fmt.Sprintf("keyfunc: %s(%q): a client can write any address into it: use IP with TrustedProxies or TrustedHops, which read it", f, name))
	case strings.HasSuffix(name, "-Ip"): // X-Real-Ip, Cf-Connecting-Ip and many more
		panic(fmt.Sprintf("keyfunc: %s(%q): a client can write any address into it: use IP(TrustedHeader(%q)), "+
			"with TrustedProxies if not only your edge can reach the service", f, name, name))
	case slices.Contains(credentialHeaders, name):
		panic(fmt.Sprintf("keyfunc: %s(%q): it would be stored as it is, with its credential: use Bearer, BasicAuth, Cookie or APIKey", f, name))
	}
	return "header:" + name + ":"
}

// credentialHeaders are those that have credentials in most services.
var credentialHeaders = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token", "X-Session-Token",
}

// Method returns a Func that counts by the HTTP method. Methods other than PATCH and those of RFC
// 9110 are counted together, as "method:other", because clients can invent them.
func Method() Func {
	return func(r Request) (string, error) { return ForMethod(r.Method()), nil }
}

// ForMethod returns the key under which [Method] counts the method: for Peek and Reset without a
// request.
func ForMethod(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE":
		return "method:" + method
	}
	return "method:other"
}

// Global returns a Func with one key for all requests: a limit on the service as a whole.
func Global() Func {
	return func(Request) (string, error) { return ForGlobal(), nil }
}

// ForGlobal returns the key under which [Global] counts: for Peek and Reset without a request.
func ForGlobal() string { return "global" }
