package httpsuite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// reuseCases test memory that a framework reuses after the handler has returned.
func reuseCases() []testCase {
	return []testCase{{"KeepAlive", keepAlive, nil}}
}

// keepAlive makes many clients send request after request over persistent connections. The keys are strings as the
// framework returns them. Some frameworks write the next request into the memory of these strings, so a limiter that keeps
// such a string loses count.
func keepAlive(b *testbed) {
	header := func(f func(keyfunc.Request) string) Limit {
		return Limit{Key: func(r keyfunc.Request) (string, error) { return f(r), nil }}
	}
	for name, limit := range map[string]Limit{
		"Header":       header(func(r keyfunc.Request) string { return r.Header(KeyHeader) }),
		"HeaderValues": header(func(r keyfunc.Request) string { return r.HeaderValues(KeyHeader)[0] }),
		"Path":         header(func(r keyfunc.Request) string { return r.Path()[len("/of/"):] }),
		"Query":        header(func(r keyfunc.Request) string { return r.Query("key") }),
		"Cookie":       header(func(r keyfunc.Request) string { return r.Cookie("key") }),
		"Value":        header(func(r keyfunc.Request) string { return r.Value(UserKey).(string) }),
		"Native":       {NativeKey: true},
	} {
		b.each(name, func(b *testbed) { keepAliveBy(b, limit) })
	}
}

func keepAliveBy(b *testbed, limit Limit) {
	const clients, requests, quota = 64, 8, 1000
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(quota)))
	if err != nil {
		b.Fatal(err)
	}
	limit.Limiter = lim
	s := b.behind(limit, Route{Path: "/of/{key}"})
	var dialed atomic.Int64
	s.server.Transport.MaxIdleConnsPerHost = clients
	s.server.Transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	ctx, cancel := context.WithTimeout(b.Context(), testTimeout)
	defer cancel()
	keys := make([]string, clients)
	for i := range keys {
		keys[i] = fmt.Sprintf("client-%02d", i) // all have the same length, so that one fits into the memory of another
	}
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for round := range requests {
				key := keys[(i+round)%clients] // each connection gets another key, which overwrites the one before
				ans, err := s.try(ctx, http.MethodGet, "/of/"+key+"?key="+key, user(key), KeyHeader+": "+key, "Cookie: key="+key)
				if err == nil && ans.body != "served" {
					err = fmt.Errorf("key %s: got status %d and body %q, want it served", key, ans.status, ans.body)
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	if n := dialed.Load(); n > clients*requests/2 {
		b.Errorf("%d connections were made for %d requests, want at most half as many: connections must be reused for this test", n, clients*requests)
	}
	for _, key := range keys {
		b.wantLeft(lim, key, quota-requests)
	}
}
