package core

import (
	"strings"
	"testing"
)

func TestEncodeKeyReadable(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"ip:192.0.2.1", "ip:2001:db8::/64", "user:alice@example.com", "apikey:abc-_123", strings.Repeat("x", 64)} {
		if got := encodeKey(key); got != key {
			t.Errorf("encodeKey(%q) = %q, want it as it is", key, got)
		}
	}
}

// FuzzEncodeKey holds that keys are short, cannot leave their braces, and do not
// meet: what stands for itself never looks like a digest.
func FuzzEncodeKey(f *testing.F) {
	for _, key := range []string{"a", "~a", "a}:x", "{", "\x00", "é", strings.Repeat("x", 65)} {
		f.Add(key, key+" ")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			t.Skip()
		}
		one, other := encodeKey(a), encodeKey(b)
		if len(one) > maxPlainKey || strings.ContainsAny(one, "{} \r\n\x00") {
			t.Errorf("encodeKey(%q) = %q", a, one)
		}
		if one != a && one[0] != '~' {
			t.Errorf("encodeKey(%q) = %q: neither itself nor a digest", a, one)
		}
		if (a == b) != (one == other) {
			t.Errorf("encodeKey(%q) = %q, encodeKey(%q) = %q", a, one, b, other)
		}
	})
}
