// Package key contains the rules for the parts of a Redis key: which names and prefixes a program may choose,
// and in which form a user's key is stored.
package key

import (
	"crypto/sha256"
	"encoding/base64"
)

// MaxName is the length of the longest name or prefix, in bytes.
const MaxName = 64

// ValidName reports whether s can be the name of a limiter or a limit: 1 to MaxName letters, digits and
// "_", "." or "-".
func ValidName(s string) bool {
	if s == "" || len(s) > MaxName {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && s[i] != '_' && s[i] != '.' && s[i] != '-' {
			return false
		}
	}
	return true
}

// ValidPrefix reports whether s can be the prefix of Redis keys: like a name, but ":" is also allowed.
func ValidPrefix(s string) bool {
	for i := range len(s) {
		if !ValidName(s[i:i+1]) && s[i] != ':' {
			return false
		}
	}
	return s != "" && len(s) <= MaxName
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// maxPlain is the length, in bytes, of the longest key that is stored unchanged.
const maxPlain = 64

// Encode returns the form in which a user's key is stored between the braces of a Redis key. A short key of
// plain characters is stored unchanged, so that operators can read it. Any other key is replaced by "~" and
// its SHA-256. Encoded keys are short, and different keys have different encoded forms. An encoded key cannot
// contain a closing brace: with a brace in its key, a client could choose the hash slot of the Redis key. key
// must not be empty.
func Encode(key string) string {
	if plain(key) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Local is like Encode, but for keys that do not leave this process. It returns every short key unchanged,
// whatever characters the key contains, unless the key begins with "~". key must not be empty. Local must not be
// applied twice, because its result may begin with "~".
func Local(key string) string {
	if len(key) <= maxPlain && key[0] != '~' {
		return key
	}
	return Encode(key)
}

// plain reports whether Encode stores key unchanged. key must not be empty.
func plain(key string) bool {
	if len(key) > maxPlain || key[0] == '~' {
		return false
	}
	for i := range len(key) {
		if !plainByte[key[i]] {
			return false
		}
	}
	return true
}

// plainByte says which bytes need no quoting in redis-cli and cannot be mistaken for another part of the
// Redis key.
var plainByte = func() (table [256]bool) {
	for c := range table {
		table[c] = alphanumeric(byte(c))
	}
	for _, c := range []byte("-_.:/@+=,%|~") {
		table[c] = true
	}
	return table
}()
