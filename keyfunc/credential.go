package keyfunc

import (
	"crypto/sha256"
	"encoding/base64"
)

// A CredentialOption adjusts a Func that reads a credential: [Known].
type CredentialOption func(*credential)

// A credential turns what a client shows into a key.
type credential struct {
	kind  string
	known func(string) bool
}

// Known has the Func ask known whether a credential is one that was issued; one
// that is not counts as missing. Without it a client that invents a credential
// for every request gets a fresh bucket for every request. known is called for
// each request and must be safe for concurrent use.
func Known(known func(string) bool) CredentialOption {
	if known == nil {
		panic("keyfunc: Known(nil): want a function that tells whether a credential was issued")
	}
	return func(c *credential) { c.known = known }
}

// APIKey returns a Func that counts by the API key in the header called name,
// such as "X-API-Key". The key in Redis is a digest: the credential itself
// reaches neither Redis nor logs nor headers. A request without the header is
// [ErrNoKey].
//
// A client may send any key it likes: mount the middleware after authentication,
// or use [Known], or put a limiter by [IP] in front.
func APIKey(name string, o ...CredentialOption) Func {
	if name == "" {
		panic(`keyfunc: APIKey(""): want the name of a header, such as "X-API-Key"`)
	}
	c := newCredential("apikey:", o)
	return func(r Request) (string, error) { return c.key(r.Header(name)) }
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

func (c *credential) key(secret string) (string, error) {
	if secret == "" || c.known != nil && !c.known(secret) {
		return "", ErrNoKey
	}
	return c.kind + digest(secret), nil
}

// digestSize is how much of a SHA-256 stands in a key: 144 bits, which base64
// writes without a remainder.
const digestSize = 18

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:digestSize])
}
