package key

import (
	"strings"
	"testing"
)

func TestEncodeReadable(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"ip:192.0.2.1", "ip:2001:db8::/64", "user:alice@example.com", "apikey:abc-_123", strings.Repeat("x", 64)} {
		if got := Encode(key); got != key {
			t.Errorf("Encode(%q) = %q, want it as it is", key, got)
		}
	}
}

// FuzzEncode checks that encoded keys are short, do not contain a closing brace, and do not collide: no key
// that is stored unchanged looks like a digest.
func FuzzEncode(f *testing.F) {
	for _, key := range []string{"a", "~a", "a}:x", "{", "\x00", "é", strings.Repeat("x", 65)} {
		f.Add(key, key+" ")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			t.Skip()
		}
		one, other := Encode(a), Encode(b)
		if len(one) > maxPlain || strings.ContainsAny(one, "{} \r\n\x00") {
			t.Errorf("Encode(%q) = %q", a, one)
		}
		if one != a && one[0] != '~' {
			t.Errorf("Encode(%q) = %q: neither itself nor a digest", a, one)
		}
		if (a == b) != (one == other) {
			t.Errorf("Encode(%q) = %q, Encode(%q) = %q", a, one, b, other)
		}
	})
}
