package core

import (
	"crypto/sha256"
	"encoding/base64"
)

// A Limiter's name, a Limit's name and a prefix are part of every Redis key.
const maxName = 64

func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && s[i] != '_' && s[i] != '.' && s[i] != '-' {
			return false
		}
	}
	return true
}

func validPrefix(s string) bool {
	for i := range len(s) {
		if !validName(s[i:i+1]) && s[i] != ':' {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// maxPlainKey is the longest key that stands in Redis as it is.
const maxPlainKey = 64

// encodeKey returns the form in which a user's key stands between the braces of
// a Redis key. A short key of plain characters stands for itself, so that
// operators can read it. Any other is replaced by "~" and its SHA-256: no key
// can close the braces and choose its own hash slot, be mistaken for another, or
// be long.
func encodeKey(key string) string {
	if plain(key) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// localKey is encodeKey for what stays in this process, where a short key of any
// characters can stand for itself.
func localKey(key string) string {
	if len(key) <= maxPlainKey && key[0] != '~' {
		return key
	}
	return encodeKey(key)
}

func plain(key string) bool {
	if len(key) > maxPlainKey || key[0] == '~' {
		return false
	}
	for i := range len(key) {
		if !plainByte[key[i]] {
			return false
		}
	}
	return true
}

// plainByte holds what needs no quoting in redis-cli and cannot be taken for
// another part of the Redis key.
var plainByte = func() (table [256]bool) {
	for c := range table {
		table[c] = alphanumeric(byte(c))
	}
	for _, c := range []byte("-_.:/@+=,%|~") {
		table[c] = true
	}
	return table
}()
