package keyfunc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// keyOf prints the key that f takes from r. Programs pass f to a Middleware.
func keyOf(f keyfunc.Func, r *http.Request) {
	lim, _ := core.NewMemory("example", core.FixedWindow(core.PerHour(1)))
	shown := func(r keyfunc.Request) (string, error) {
		key, err := f(r)
		if err != nil {
			key = err.Error()
		}
		fmt.Println(key)
		return key, nil
	}
	httplimit.Middleware(lim, shown)(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
}

// Authentication has put the user into the request's context.
func ExampleUser() {
	type userKey struct{}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), userKey{}, "alice"))

	keyOf(keyfunc.User(userKey{}), r)
	// Output: user:alice
}

// A key that was not issued counts as missing, and its sender by address: inventing
// keys gains nothing. The key itself is stored nowhere.
func ExampleAPIKey() {
	issued := map[string]bool{"key-1": true, "key-2": true}
	byKey := keyfunc.APIKey("X-API-Key", keyfunc.Known(func(k string) bool { return issued[k] }))

	for _, key := range []string{"key-1", "invented"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-API-Key", key)
		keyOf(byKey, r)
	}
	// Output:
	// apikey:vil0VGl443OebW2oXEvp8zTO
	// keyfunc: the request carries no such key
}

// A support tool looks an API key up under the key that requests are counted by.
func ExampleForAPIKey() {
	fmt.Println(keyfunc.ForAPIKey("key-1"))
	// Output: apikey:vil0VGl443OebW2oXEvp8zTO
}

// Known asks the service for the credentials that it has issued, such as a cache of
// them.
func ExampleKnown() {
	issued := func(token string) bool { return token == "token-1" }

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer invented")
	keyOf(keyfunc.Bearer(keyfunc.Known(issued)), r)
	// Output: keyfunc: the request carries no such key
}

// With a Secret a reader of the keys in Redis cannot try out which credential makes
// them.
func ExampleSecret() {
	fmt.Println(keyfunc.ForAPIKey("key-1", keyfunc.Secret("a random key of 16 bytes or more")))
	// Output: apikey:dhTC6OqolRAvqNcRsIAupvKi
}

// CredentialOptions go with every kind of credential.
func ExampleCredentialOption() {
	options := []keyfunc.CredentialOption{
		keyfunc.Known(func(token string) bool { return token == "token-1" }),
		keyfunc.Secret("a random key of 16 bytes or more"),
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "session", Value: "token-1"})
	keyOf(keyfunc.FirstOf(keyfunc.Bearer(options...), keyfunc.Cookie("session", options...)), r)
	// Output: cookie:pavIordqNClnAskO7CLFTfy5
}

func ExampleBearer() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer token-1")
	keyOf(keyfunc.Bearer(), r)
	// Output: bearer:PwiqzhIu4jaEMsHKI6BJvGQL
}

func ExampleCookie() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "session", Value: "s-1"})
	keyOf(keyfunc.Cookie("session"), r)
	// Output: cookie:aoQLr12MP_JBaIrrFFRuZTd0
}

func ExampleQuery() {
	keyOf(keyfunc.Query("api_key"), httptest.NewRequest(http.MethodGet, "/?api_key=key-1", nil))
	// Output: query:vil0VGl443OebW2oXEvp8zTO
}

// The user name; the password is checked by the authentication before.
func ExampleBasicAuth() {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth("alice", "password")
	keyOf(keyfunc.BasicAuth(), r)
	// Output: basic:alice
}
