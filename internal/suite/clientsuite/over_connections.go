package clientsuite

import (
	"slices"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// A counter checks that each request was counted by the right key.
type counter struct {
	*testing.T

	lim *core.Limiter
}

func newCounter(t *testing.T) counter {
	t.Helper()
	return counter{t, limiter(t, 1_000_000)}
}

// used returns how many units of a key are used.
func (c counter) used(key string) int64 {
	c.Helper()
	res, err := c.lim.Peek(c.Context(), key)
	if err != nil {
		c.Fatal(err)
	}
	return 1_000_000 - res.Remaining
}

// counts sends a request, and checks that it is answered with 200 and counted by the key want. A request that may be
// refused may instead get a status for client errors and not be counted by want.
func (c counter) counts(what, want string, mayRefuse bool, send func() (status int)) {
	c.Helper()
	before := c.used(want)
	status := send()
	counted := c.used(want) - before
	switch {
	case status == 200 && counted == 1:
	case mayRefuse && (status == 0 || status == 400 || status == 431) && counted == 0:
	default:
		c.Errorf("%s: got status %d and %d units counted by the key %q, want 200 and 1", what, status, counted, want)
	}
}

// everyRowOverConnections sends the requests of the table over connections, as text.
func everyRowOverConnections(t *testing.T, apps Apps) {
	rows := slices.Concat(addresses, proxied, proxies, single, forwarded, credentials)
	for name, newApp := range apps.all() {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t)
			s := Serve(t, newApp, c.lim)
			for _, r := range rows {
				s.use(r.f)
				c.counts(r.text(), r.want, false, func() int {
					conn := s.Dial(r.peer)
					defer conn.Close()
					return conn.Send(Request{Header: r.header}.raw())
				})
			}
		})
	}
}

// rawRequests sends requests whose special form is lost once they are parsed.
func rawRequests(t *testing.T, apps Apps) {
	for name, newApp := range apps.all() {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t)
			s := Serve(t, newApp, c.lim)
			for _, v := range slices.Concat(apps.trailers(), apps.shapes()) {
				s.use(v.f)
				c.counts(v.what, v.want, v.mayRefuse, func() int {
					conn := s.Dial(v.peer)
					defer conn.Close()
					return conn.Send(v.raw)
				})
			}
		})
	}
}

// trailerEndsWithItsRequest sends requests with and without a trailer over one connection: a trailer must not affect later
// requests.
func trailerEndsWithItsRequest(t *testing.T, apps Apps) {
	for name, newApp := range apps.all() {
		for _, by := range []struct {
			f                     keyfunc.Func
			client, left, trailer string
		}{
			{ours, xff + "203.0.113.9", xff + "6.6.6.6, 203.0.113.9", xff + "6.6.6.6"},
			{standard, fwd + "for=203.0.113.9", fwd + "for=6.6.6.6, for=203.0.113.9", fwd + "for=6.6.6.6"},
		} {
			forged := []string{by.trailer}
			if apps.refuse(forged) {
				continue // a refused request ends its connection
			}
			t.Run(name, func(t *testing.T) {
				c := newCounter(t)
				s := Serve(t, newApp, c.lim)
				s.use(by.f)
				conn := s.Dial(proxy)
				defer conn.Close()
				for range 3 {
					c.counts("chunked", "ip:203.0.113.9", false, func() int { return conn.Send(chunked("abc", []string{by.client}, forged)) })
					c.counts("without the header", "ip:10.0.0.1", false, func() int { return conn.Send(chunked("abc", nil, forged)) })
					c.counts("plain", "ip:203.0.113.9", false, func() int { return conn.Send(Request{Header: []string{by.left}}.raw()) })
					c.counts("plain, without the header", "ip:10.0.0.1", false, func() int { return conn.Send(Request{}.raw()) })
				}
			})
		}
	}
}
