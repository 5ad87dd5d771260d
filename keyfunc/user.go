package keyfunc

import (
	"fmt"
	"reflect"
	"strconv"
	"sync/atomic"
)

// User returns a Func that counts by the identity that your authentication has stored under key in the
// request's context. The identity is a string, an integer or a [fmt.Stringer]. If nothing is stored, or an
// empty string, the error is [ErrNoKey]. A value of another type is an error, too: for example a float64,
// which encoding/json returns for a number.
//
// Mount the middleware after the authentication. If a request has no identity, and no earlier request had
// one either, the middleware logs this, but only once.
//
// All requests with the same identity share one count. If your authentication stores a value for anonymous
// users, too, such as the number 0, all anonymous users share one count. Store nothing for them, so that
// each is counted by their own address.
func User(key any) Func {
	if key == nil {
		panic("keyfunc: User(nil): want the key under which authentication stores the user")
	}
	missing := fmt.Errorf("%w: nothing is stored under the key of User: mount the middleware after the authentication; "+
		"if some requests need none, this is no mistake", ErrNoKey)
	var seen atomic.Bool // whether authentication has stored an identity
	return func(r Request) (string, error) {
		value := r.Value(key)
		if value == nil && !seen.Load() {
			return "", missing
		}
		id, err := identity(value)
		switch {
		case err != nil:
			return "", fmt.Errorf("keyfunc: User(%v): %w", key, err)
		case value != nil && !seen.Load():
			seen.Store(true)
		}
		if id == "" {
			return "", ErrNoKey
		}
		return ForUser(id), nil
	}
}

// ForUser returns the key under which [User] counts the identity id. Use it for Peek and Reset without a
// request.
func ForUser(id string) string { return "user:" + id }

func identity(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case fmt.Stringer:
		if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer && v.IsNil() {
			return "", nil
		}
		return value.String(), nil
	}
	v := reflect.ValueOf(value)
	switch {
	case v.Kind() == reflect.String:
		return v.String(), nil
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10), nil
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10), nil
	}
	if v.CanFloat() {
		return "", fmt.Errorf("the value is a %T, want a string, an integer or a fmt.Stringer: encoding/json makes a float64 of a number, "+
			"as in the claims of a token: store its text instead, or decode it with UseNumber", value)
	}
	return "", fmt.Errorf("the value is a %T, want a string, an integer or a fmt.Stringer", value)
}
