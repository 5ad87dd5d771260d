package keyfunc

import (
	"errors"
	"fmt"
	"strings"
)

// Join returns a Func whose key is made of the keys of all fs, such as a user and
// a route: each combination is counted on its own. Different combinations never give
// the same key, whatever the parts contain. If one of the keys is missing, the error
// is [ErrNoKey].
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
			if i > 0 {
				b.WriteByte(',')
			}
			_, _ = joinEscaper.WriteString(&b, key) // a Builder never fails
		}
		return b.String(), nil
	}
}

// joinEscaper escapes the commas inside of keys, so that a comma always separates two
// keys.
var joinEscaper = strings.NewReplacer("%", "%25", ",", "%2C")

// FirstOf returns a Func whose key is that of the first of fs that has one, such
// as the user if there is one and else the address. If none has one, the error is
// [ErrNoKey].
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
