package keyfunc

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// Header returns a Func that counts by the value of the header called name, such as a tenant that your
// gateway sets. A client can send any value: mount the middleware where the header has been verified, or
// put a limiter by [IP] in front of it.
//
// The value is part of the key in Redis, so use [APIKey] for credentials. Header panics if name is a header
// with a client's address, such as X-Forwarded-For, or with a credential, such as Authorization, Cookie or
// X-API-Key.
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

// ForHeader returns the key under which [Header], with the same name, counts the value. Use it for Peek and
// Reset without a request.
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

// credentialHeaders are headers that have credentials in most services.
var credentialHeaders = []string{
	"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token", "X-Session-Token",
}

// Method returns a Func that counts by the HTTP method. PATCH and each method of RFC 9110 have a count of
// their own. All other methods are counted together, as "method:other", because clients can invent
// methods.
func Method() Func {
	return func(r Request) (string, error) { return ForMethod(r.Method()), nil }
}

// ForMethod returns the key under which [Method] counts the method. Use it for Peek and Reset without a
// request.
func ForMethod(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE":
		return "method:" + method
	}
	return "method:other"
}

// Global returns a Func with one key for all requests. It limits the service as a whole.
func Global() Func {
	return func(Request) (string, error) { return ForGlobal(), nil }
}

// ForGlobal returns the key under which [Global] counts. Use it for Peek and Reset without a request.
func ForGlobal() string { return "global" }
