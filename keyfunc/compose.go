package keyfunc

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Join returns a Func that combines the keys of all fs, such as the user and the route of a request. Each
// combination of keys is counted separately. Different combinations never give the same key, whatever the
// parts contain. A part longer than 64 bytes is replaced by a digest. If one of fs finds no key, the
// error is [ErrNoKey].
func Join(fs ...Func) Func {
	mustFuncs("Join", fs)
	return func(r Request) (string, error) {
		var b strings.Builder
		b.WriteString("join:")
		for i, f := range fs {
			key, err := f(r)
			if err != nil {
				return "", err
			}
			joinPart(&b, i, key)
		}
		return b.String(), nil
	}
}

// ForJoin returns the key under which [Join] counts requests with the given keys, in the order of Join's
// Funcs. Use it for Peek and Reset without a request.
func ForJoin(keys ...string) string {
	if len(keys) == 0 {
		panic("keyfunc: ForJoin(): want at least one key, such as that of ForUser")
	}
	var b strings.Builder
	b.WriteString("join:")
	for i, key := range keys {
		joinPart(&b, i, key)
	}
	return b.String()
}

// maxPart is the length, in bytes, of the longest key that a joined key contains unchanged.
const maxPart = 64

// joinPart appends key, which is part i. A long key is replaced by a digest, because escaping takes time
// for every byte that a client sends. An escaped key never contains "%~", so no other key looks like a
// digest.
func joinPart(b *strings.Builder, i int, key string) {
	if i > 0 {
		b.WriteByte(',')
	}
	if len(key) > maxPart {
		sum := sha256.Sum256([]byte(key))
		b.WriteString("%~" + base64.RawURLEncoding.EncodeToString(sum[:]))
		return
	}
	_, _ = joinEscaper.WriteString(b, key) // a Builder never fails
}

// joinEscaper escapes the commas inside of keys, so that a comma always separates two keys.
var joinEscaper = strings.NewReplacer("%", "%25", ",", "%2C")

// FirstOf returns a Func that tries fs in order and uses the first key that one of them finds: for example
// the user if the request has one, and otherwise the client's address. If none of fs finds a key, the error
// is [ErrNoKey]. There is no ForFirstOf: use the counterpart of the Func that finds the key.
func FirstOf(fs ...Func) Func {
	mustFuncs("FirstOf", fs)
	return func(r Request) (string, error) {
		for _, f := range fs {
			key, err := f(r)
			if !errors.Is(err, ErrNoKey) {
				return key, err
			}
		}
		return "", ErrNoKey
	}
}

func mustFuncs(name string, fs []Func) {
	if len(fs) == 0 {
		panic("keyfunc: " + name + "(): want at least one Func")
	}
	for i, f := range fs {
		if f == nil {
			panic(fmt.Sprintf("keyfunc: %s: Func %d is nil", name, i+1))
		}
	}
}
