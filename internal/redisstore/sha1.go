//go:build go1.26

package redisstore

import (
	"crypto/fips140"
	"crypto/sha1"
	"encoding/hex"
)

// Digest returns the digest by which Redis knows a script. The digest is only a name and protects
// nothing, so it may be used even in a process that enforces FIPS 140 (GODEBUG=fips140=only).
func Digest(source string) (digest string) {
	fips140.WithoutEnforcement(func() {
		sum := sha1.Sum([]byte(source))
		digest = hex.EncodeToString(sum[:])
	})
	return digest
}
