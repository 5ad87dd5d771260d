package admin_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/redislimit/redislimit/admin"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// Only administrators with a session of the service may see the page.
func Example() {
	watch := admin.NewWatch()
	lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(100)), core.ObserveKeys(watch.Observe))
	watch.Add(lim)

	isAdmin := func(r *http.Request) bool {
		session, err := r.Cookie("session")
		return err == nil && session.Value == "that of an administrator"
	}
	mux := http.NewServeMux()
	mux.Handle("/limits/", admin.Handler(isAdmin, watch))

	for _, session := range []string{"", "that of an administrator"} {
		r := httptest.NewRequest(http.MethodGet, "/limits/", http.NoBody)
		r.AddCookie(&http.Cookie{Name: "session", Value: session})
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 403
	// 200
}

// A program can use the JSON of the page, too.
func ExampleHandler() {
	watch := admin.NewWatch()
	lim := core.MustNewMemory("login", core.FixedWindow(core.PerHour(5)), core.Ban())
	watch.Add(lim)
	server := httptest.NewServer(admin.Handler(func(*http.Request) bool { return true }, watch))
	defer server.Close()

	body := `{"limiter": "login", "parts": [{"by": "ip", "value": "192.0.2.1"}, {"by": "basic", "value": "alice"}], "for": "1h"}`
	response, err := http.Post(server.URL+"/block", "application/json", strings.NewReader(body))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()

	res, err := lim.Peek(context.Background(), "join:ip:192.0.2.1,basic:alice")
	fmt.Println(response.StatusCode, res.Banned, err)
	// Output: 200 true <nil>
}

// If the page must not show keys, pass none to the Watch.
func ExampleWatch_Observe() {
	watch := admin.NewWatch()
	withoutKeys := core.Observe(func(ctx context.Context, e core.Event) { watch.Observe(ctx, "", e) })
	watch.Add(core.MustNewMemory("api", core.TokenBucket(core.PerMinute(100)), withoutKeys))
}

// A support desk looks up a digest that was made with a secret, by typing the API key.
func ExampleWatch_LookUp() {
	secret := keyfunc.Secret("a random text of 16 bytes or more")
	watch := admin.NewWatch()
	watch.LookUp("API key", func(value string) string { return keyfunc.ForAPIKey(value, secret) })
}
