package recipes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// loginKey counts a user's name at an address.
func loginKey(name, address string) string {
	name = strings.ToLower(strings.TrimSpace(name)) // as the look-up of the user does
	return keyfunc.ForJoin("login:"+name, address)
}

// byLogin is the key of a request; nameOf takes the user's name from its body.
func byLogin(nameOf func(*http.Request) string, address keyfunc.Func) keyfunc.Func {
	return httplimit.Key(func(r *http.Request) (string, error) {
		name := nameOf(r)
		if name == "" {
			return "", keyfunc.ErrNoKey
		}
		from, err := address(httplimit.Request(r))
		return loginKey(name, from), err
	})
}

// formName reads a form of at most 64 KiB. The handler finds it parsed.
func formName(r *http.Request) string {
	r.Body = http.MaxBytesReader(nil, r.Body, 64<<10)
	return r.PostFormValue("user")
}

// jsonName reads a JSON body of at most 64 KiB, and puts it back for the handler.
func jsonName(r *http.Request) string {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 64<<10))
	r.Body = io.NopCloser(bytes.NewReader(body))
	var login struct {
		User string `json:"user"`
	}
	if err != nil || json.Unmarshal(body, &login) != nil {
		return ""
	}
	return login.User
}

func Example_login() {
	checkPassword := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})

	logins := core.MustNew(rdb, "logins", core.SlidingWindowLog(core.Per(3, 15*time.Minute)), core.SlidingWindowLog(core.PerDay(20)), core.FailClosed(),
		core.Ban(15*time.Minute, time.Hour, 24*time.Hour)) // who is denied, and goes on after it, waits longer each time
	failed := guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })
	login := httplimit.Middleware(logins, byLogin(formName, keyfunc.IP()), failed)(checkPassword)

	unlock := func(ctx context.Context, name string, address netip.Addr) error {
		key := loginKey(name, keyfunc.ForIP(address))
		return errors.Join(logins.Reset(ctx, key), logins.Unblock(ctx, key)) // else a try in between bans anew
	}

	try := func(name, password string) {
		fmt.Print(name, " ", password, " ")
		show(send(login, http.MethodPost, "/login", "user="+name+"&password="+password, "Content-Type: application/x-www-form-urlencoded"), "Retry-After")
	}
	try("alice", "guess-1")
	try("Alice", "guess-2")
	try("alice", "right")
	try("ALICE", "guess-3")
	try("alice", "right")
	fmt.Println(unlock(context.Background(), "alice", netip.MustParseAddr("192.0.2.1")))
	try("alice", "right")
	// Output:
	// alice guess-1 401
	// Alice guess-2 401
	// alice right 200
	// ALICE guess-3 401
	// alice right 429 900
	// <nil>
	// alice right 200
}

func Example_loginJSON() {
	checkPassword := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var login struct {
			Password string `json:"password"`
		}
		if json.NewDecoder(r.Body).Decode(&login) != nil || login.Password != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})

	logins := core.MustNew(rdb, "json-logins", core.SlidingWindowLog(core.Per(1, 15*time.Minute)), core.FailClosed())
	failed := guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })

	login := httplimit.Middleware(logins, byLogin(jsonName, keyfunc.IP()), failed)(checkPassword)

	for _, body := range []string{
		`{"user": "alice", "password": "right"}`, `{"user": "alice", "password": "guess"}`, `{"user": "alice", "password": "right"}`,
		`{"user": "bob", "password": "right"}`, "no JSON", "no JSON",
	} {
		fmt.Println(body, send(login, http.MethodPost, "/login", body).Code)
	}
	// Output:
	// {"user": "alice", "password": "right"} 200
	// {"user": "alice", "password": "guess"} 401
	// {"user": "alice", "password": "right"} 429
	// {"user": "bob", "password": "right"} 200
	// no JSON 401
	// no JSON 429
}

func Example_bans() {
	lim, err := core.New(rdb, "login", core.FailClosed(),
		core.SlidingWindowLog(core.Per(5, 15*time.Minute)),
		core.Ban(10*time.Minute, time.Hour, 24*time.Hour))
	if err != nil {
		panic(err)
	}
	for range 6 {
		res, err := lim.Allow(context.Background(), "ip:192.0.2.1")
		fmt.Println(res.Allowed, res.Banned, res.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true false 0s <nil>
	// true false 0s <nil>
	// true false 0s <nil>
	// true false 0s <nil>
	// true false 0s <nil>
	// false true 15m0s <nil>
}
