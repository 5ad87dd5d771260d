package keyfunc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// A CredentialOption adjusts a Func that reads a credential. [Known] and [Secret] return
// CredentialOptions, and panic at once if their argument is wrong.
type CredentialOption interface{ applyTo(c *credential) }

// A credentialOption is the CredentialOption that a function applies.
type credentialOption func(c *credential)

func (o credentialOption) applyTo(c *credential) { o(c) }

// A credential turns the credential that a client sends into a key.
type credential struct {
	kind   string
	known  func(string) bool
	secret []byte
}

// Known takes a function that reports whether a credential was issued. A credential that was not
// issued is treated as if the request had none. Without Known, a client that invents a new
// credential for each request gets a new limit each time. known is called for each request that has a
// credential, and must be safe for concurrent use. If a request has several headers of the same name,
// the first one with an issued credential counts; known is called at most 20 times.
func Known(known func(string) bool) CredentialOption {
	if known == nil {
		panic("keyfunc: Known(nil): want a function that reports whether a credential was issued")
	}
	return credentialOption(func(c *credential) {
		mustOnce("Known", c.known != nil)
		c.known = known
	})
}

// Secret makes the Func compute its digests by HMAC-SHA256 with the given secret key. Without
// Secret, somebody who sees the keys in Redis could guess a credential and check the guess. The
// secret key must be random and have at least 16 bytes. All processes that share a limit need the
// same secret key.
func Secret[K string | []byte](key K) CredentialOption {
	if len(key) < 16 {
		panic(fmt.Sprintf("keyfunc: Secret: the key has %d bytes: want a random one of 16 bytes or more", len(key)))
	}
	secret := []byte(string(key))
	return credentialOption(func(c *credential) {
		mustOnce("Secret", c.secret != nil)
		c.secret = secret
	})
}

// APIKey returns a Func that counts by the API key in the header called name, such as "X-API-Key". The key
// contains a digest of 144 bits in place of the credential, so the credential itself never appears in
// Redis, logs or headers. For a request without the header, the error is [ErrNoKey].
//
// A client that is not authenticated can invent a new API key for each request. To prevent this, use [Known],
// or put a limiter by [IP] in front of the middleware. If your authentication stores whose API key it is,
// count by [User] after it. APIKey after authentication does not prevent this everywhere: if a client sends
// several headers of this name, APIKey without Known reads the first one, while Echo's KeyAuth accepts any
// valid one.
func APIKey(name string, o ...CredentialOption) Func {
	mustHeader("APIKey", name, "X-API-Key")
	c := newCredential("apikey:", o)
	return func(r Request) (string, error) {
		return c.keyOfLines(r, name, func(line string) string { return line })
	}
}

// ForAPIKey returns the key under which [APIKey], with the same options, counts a client that sends the
// given secret. Use it for Peek and Reset without a request.
func ForAPIKey(secret string, o ...CredentialOption) string {
	return newCredential("apikey:", o).digest(secret)
}

// ForBearer returns the key under which [Bearer], with the same options, counts the token. Use it for Peek
// and Reset without a request.
func ForBearer(token string, o ...CredentialOption) string {
	return newCredential("bearer:", o).digest(token)
}

// ForCookie returns the key under which [Cookie], with the same name and options, counts the value. Use it
// for Peek and Reset without a request.
func ForCookie(name, value string, o ...CredentialOption) string {
	return cookieCredential("ForCookie", name, o).digest(value)
}

// ForQuery returns the key under which [Query], with the same name and options, counts the value. Use it
// for Peek and Reset without a request.
func ForQuery(name, value string, o ...CredentialOption) string {
	return queryCredential("ForQuery", name, o).digest(value)
}

// Bearer returns a Func that counts by the token in "Authorization: Bearer ..." (RFC 6750). As with
// [APIKey], the key contains a digest, and clients can invent tokens.
//
// Do not use it for a JSON Web Token. Most libraries accept several spellings of one signature, and each
// spelling would have a limit of its own, even with [Known]. Count by [User] after authentication instead.
func Bearer(o ...CredentialOption) Func {
	c := newCredential("bearer:", o)
	return func(r Request) (string, error) {
		return c.keyOfLines(r, "Authorization", func(line string) string { return credentials(line, "Bearer") })
	}
}

// Cookie returns a Func that counts by the value of the cookie called name. As with [APIKey], the key
// contains a digest, and clients can invent values.
func Cookie(name string, o ...CredentialOption) Func {
	c := cookieCredential("Cookie", name, o)
	return func(r Request) (string, error) { return c.key(r.Cookie(name)) }
}

func cookieCredential(f, name string, o []CredentialOption) *credential {
	mustToken(f, "cookie", name, "session")
	return newCredential("cookie:"+name+":", o)
}

// Query returns a Func that counts by the query parameter called name. As with [APIKey], the key
// contains a digest, and clients can invent values.
func Query(name string, o ...CredentialOption) Func {
	c := queryCredential("Query", name, o)
	return func(r Request) (string, error) { return c.key(r.Query(name)) }
}

func queryCredential(f, name string, o []CredentialOption) *credential {
	mustName(f, name, "api_key")
	return newCredential("query:"+name+":", o)
}

// BasicAuth returns a Func that counts by the user name of HTTP Basic authentication (RFC 7617). It does
// not check the password, so a client can send any user name, and each spelling of a name has a limit of its
// own.
//
// To limit guesses at the password of a user, count in the code that checks the password, as the recipe for
// logins does, and not by BasicAuth: frameworks read the header in different ways. Echo 5, for example, tries several
// headers, of which BasicAuth reads the first. After authentication, count by [User].
func BasicAuth() Func {
	return func(r Request) (string, error) {
		for _, line := range r.HeaderValues("Authorization") {
			encoded := credentials(line, "Basic")
			if encoded == "" {
				continue
			}
			// Fiber 3 accepts base64 without padding, too.
			pair, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
			user, _, ok := strings.Cut(string(pair), ":")
			if err != nil || !ok || user == "" {
				break
			}
			return ForBasicAuth(user), nil
		}
		return "", ErrNoKey
	}
}

// ForBasicAuth returns the key under which [BasicAuth] counts the user name. Use it for Peek and Reset
// without a request.
func ForBasicAuth(user string) string { return "basic:" + user }

// credentials returns the credentials in a line of the header Authorization if it has the given scheme, or "". Any
// character may follow the scheme, because Echo ignores it.
func credentials(line, scheme string) string {
	if len(line) <= len(scheme) || !strings.EqualFold(line[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(line[len(scheme)+1:])
}

func mustName(f, name, example string) {
	if name == "" {
		panic("keyfunc: " + f + `(""): want a name, such as "` + example + `"`)
	}
}

// mustToken panics if no header or cookie can have the name (RFC 9110, section 5.6.2). f is the function to
// name in the message.
func mustToken(f, what, name, example string) {
	mustName(f, name, example)
	for _, c := range name {
		if c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) {
			panic(fmt.Sprintf("keyfunc: %s(%q): no %s can have this name, because of the %q: want one such as %q", f, name, what, c, example))
		}
	}
}

// mustHeader panics if no header of a Request can have the name.
func mustHeader(f, name, example string) {
	mustToken(f, "header", name, example)
	if strings.EqualFold(name, "Host") {
		panic("keyfunc: " + f + `("` + name + `"): net/http, and so Gin and Echo, keep Host elsewhere: ` +
			"take it from the framework's own request, by the Key of the adapter")
	}
}

func newCredential(kind string, options []CredentialOption) *credential {
	c := &credential{kind: kind}
	for _, option := range options {
		if option == nil {
			panic("keyfunc: a nil CredentialOption: leave it out")
		}
		option.applyTo(c)
	}
	return c
}

// maxLines is how many lines of a header are read at most. Echo's KeyAuth also reads 20.
const maxLines = 20

// keyOfLines returns the key of the credential that r sends in the header called name. in returns the credential
// in a line of the header, or "". Without Known, it is the one in the first line that has one.
func (c *credential) keyOfLines(r Request, name string, in func(line string) string) (string, error) {
	if key, err := c.key(in(r.Header(name))); err == nil {
		return key, nil // almost every request has only one line, and with Fiber it takes longer to get all
	}
	lines := r.HeaderValues(name)
	for i := 1; i < min(len(lines), maxLines); i++ {
		if key, err := c.key(in(lines[i])); err == nil {
			return key, nil
		}
	}
	return "", ErrNoKey
}

func (c *credential) key(sent string) (string, error) {
	if sent == "" || c.known != nil && !c.known(sent) {
		return "", ErrNoKey
	}
	return c.digest(sent), nil
}

// digestSize is how many bytes of a SHA-256 a key contains: 144 bits, which base64 encodes without padding.
const digestSize = 18

func (c *credential) digest(sent string) string {
	var sum []byte
	if c.secret == nil {
		plain := sha256.Sum256([]byte(sent))
		sum = plain[:]
	} else {
		mac := hmac.New(sha256.New, c.secret)
		mac.Write([]byte(sent))
		sum = mac.Sum(nil)
	}
	return c.kind + base64.RawURLEncoding.EncodeToString(sum[:digestSize])
}
