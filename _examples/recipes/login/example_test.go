package login_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/redislimit/redislimit/_examples/recipes/login"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// A userStore has one user, alice.
type userStore struct{}

func (userStore) Check(_ context.Context, account, password string) (bool, error) {
	return account == "alice" && password == "right", nil
}

// The eleventh guess is denied, and so is the right password, except on the device on which alice has logged in before.
func Example() {
	users, secret := userStore{}, make([]byte, 32)
	_, _ = rand.Read(secret) // yours is the same in all processes
	startSession := func(w http.ResponseWriter, _ *http.Request, account string) { _, _ = fmt.Fprint(w, "hello ", account) }
	mux := http.NewServeMux()

	handler, err := login.New(login.Config{
		NewLimiter: core.NewMemory, // with Redis it calls core.New
		Address:    keyfunc.IP(),   // behind a proxy with keyfunc.TrustedProxies
		Secret:     secret,         // signs the cookies of known devices
		Users:      users,          // checks passwords
		LoggedIn:   startSession,   // answers the user after the login
	})
	if err != nil {
		panic(err)
	}
	mux.Handle("POST /login", handler)

	try := func(password string, cookies ...*http.Cookie) []*http.Cookie {
		form := url.Values{"user": {"alice"}, "password": {password}}
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
		return w.Result().Cookies()
	}
	cookies := try("right")
	for i := range 11 {
		try(fmt.Sprint("guess ", i+1))
	}
	try("right")
	try("right", cookies...)
	// Output:
	// right 200
	// guess 1 401
	// guess 2 401
	// guess 3 401
	// guess 4 401
	// guess 5 401
	// guess 6 401
	// guess 7 401
	// guess 8 401
	// guess 9 401
	// guess 10 401
	// guess 11 429
	// right 429
	// right 200
}
