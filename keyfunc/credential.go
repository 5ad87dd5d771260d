package keyfunc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// A CredentialOption adjusts a Func that reads a credential: [Known], [Secret]. A
// wrong argument panics at once.
type CredentialOption func(*credential)

// A credential turns what a client shows into a key.
type credential struct {
	kind   string
	known  func(string) bool
	secret []byte
}

// Known has the Func ask known whether a credential is one that was issued; one
// that is not counts as missing. Without it a client that invents a credential
// for every request gets a fresh bucket for every request. known is called for
// each request and must be safe for concurrent use.
func Known(known func(string) bool) CredentialOption {
	if known == nil {
		panic("keyfunc: Known(nil): want a function that reports whether a credential was issued")
	}
	return func(c *credential) { c.known = known }
}

// Secret has the Func key its digests with key (HMAC-SHA256), so that a reader of
// the keys in Redis cannot guess credentials by trying. All processes that
// share a limit need the same key.
func Secret[K string | []byte](key K) CredentialOption {
	if len(key) == 0 {
		panic("keyfunc: Secret: the key is empty: want a random one of 16 bytes or more")
	}
	secret := []byte(string(key))
	return func(c *credential) { c.secret = secret }
}

// APIKey returns a Func that counts by the API key in the header called name,
// such as "X-API-Key". The key in Redis is a digest of 144 bits: the credential
// itself reaches neither Redis nor logs nor headers. A request without the header
// is [ErrNoKey].
//
// A client may send any key it likes, and so a new one with every request: mount
// the middleware after authentication, or use [Known], or put a limiter by [IP] in
// front.
func APIKey(name string, o ...CredentialOption) Func {
	mustName("APIKey", name, "X-API-Key")
	c := newCredential("apikey:", o)
	return func(r Request) (string, error) { return c.key(r.Header(name)) }
}

// ForAPIKey returns the key under which [APIKey], with the same options, counts
// the credential secret: for Peek and Reset elsewhere.
func ForAPIKey(secret string, o ...CredentialOption) string {
	return newCredential("apikey:", o).digest(secret)
}

// Bearer returns a Func that counts by the token in "Authorization: Bearer ..."
// (RFC 6750), as a digest. The notes on [APIKey] hold here too.
func Bearer(o ...CredentialOption) Func {
	c := newCredential("bearer:", o)
	return func(r Request) (string, error) { return c.key(authorization(r, "Bearer")) }
}

// Cookie returns a Func that counts by the value of the cookie called name, as a
// digest. The notes on [APIKey] hold here too.
func Cookie(name string, o ...CredentialOption) Func {
	mustName("Cookie", name, "session")
	c := newCredential("cookie:", o)
	return func(r Request) (string, error) { return c.key(r.Cookie(name)) }
}

// Query returns a Func that counts by the query parameter called name, as a
// digest. The notes on [APIKey] hold here too.
func Query(name string, o ...CredentialOption) Func {
	mustName("Query", name, "api_key")
	c := newCredential("query:", o)
	return func(r Request) (string, error) { return c.key(r.Query(name)) }
}

// BasicAuth returns a Func that counts by the user name of HTTP Basic
// authentication (RFC 7617); the password is not looked at. Mount the middleware
// after the authentication that checks it, or a client can send any name.
func BasicAuth() Func {
	return func(r Request) (string, error) {
		pair, err := base64.StdEncoding.DecodeString(authorization(r, "Basic"))
		user, _, ok := strings.Cut(string(pair), ":")
		if err != nil || !ok || user == "" {
			return "", ErrNoKey
		}
		return "basic:" + user, nil
	}
}

// authorization returns the credentials of an authentication scheme.
func authorization(r Request, scheme string) string {
	name, credentials, _ := strings.Cut(r.Header("Authorization"), " ")
	if !strings.EqualFold(name, scheme) {
		return ""
	}
	return strings.TrimSpace(credentials)
}

func mustName(f, name, example string) {
	if name == "" {
		panic("keyfunc: " + f + `(""): want a name, such as "` + example + `"`)
	}
}

func newCredential(kind string, options []CredentialOption) *credential {
	c := &credential{kind: kind}
	for _, option := range options {
		if option == nil {
			panic("keyfunc: a nil CredentialOption: leave it out")
		}
		option(c)
	}
	return c
}

func (c *credential) key(shown string) (string, error) {
	if shown == "" || c.known != nil && !c.known(shown) {
		return "", ErrNoKey
	}
	return c.digest(shown), nil
}

// digestSize is how much of a SHA-256 is in a key: 144 bits, which base64
// writes without a remainder.
const digestSize = 18

func (c *credential) digest(shown string) string {
	var sum []byte
	if c.secret == nil {
		plain := sha256.Sum256([]byte(shown))
		sum = plain[:]
	} else {
		mac := hmac.New(sha256.New, c.secret)
		mac.Write([]byte(shown))
		sum = mac.Sum(nil)
	}
	return c.kind + base64.RawURLEncoding.EncodeToString(sum[:digestSize])
}
