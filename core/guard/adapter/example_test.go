package adapter_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

// A call is a request of a framework that has no adapter, such as one for a queue.
type call struct {
	sender string
	status int
	reply  map[string]string // its headers
	state  adapter.RequestState
}

// A callRequest shows a call to key functions.
type callRequest struct{ *call }

func (callRequest) Context() context.Context     { return context.Background() }
func (callRequest) Method() string               { return "CALL" }
func (callRequest) Path() string                 { return "/" }
func (callRequest) Route() string                { return "" }
func (c callRequest) RemoteAddr() string         { return c.sender }
func (callRequest) Header(string) string         { return "" }
func (callRequest) HeaderValues(string) []string { return nil }
func (callRequest) Query(string) string          { return "" }
func (callRequest) Cookie(string) string         { return "" }
func (callRequest) Value(any) any                { return nil }
func (c callRequest) Unwrap() any                { return c.call }
func (c callRequest) Logger() *slog.Logger       { return c.state.Logger() }

// callHeaders are the headers of a call's answer.
type callHeaders struct{ *call }

func (c callHeaders) Get(name string) string { return c.reply[name] }
func (c callHeaders) Set(name, value string) { c.reply[name] = value }
func (c callHeaders) Del(name string)        { delete(c.reply, name) }

const framework = adapter.Adapter[*call, func(*call)]("calllimit")

// OnDenied is the adapter's option, over the framework's own handlers.
func OnDenied(handler func(*call)) guard.Option { return framework.OnDenied(handler) }

// middleware is the adapter: it asks the Guard, and does what the Verdict says.
func middleware(lim *core.Limiter, key keyfunc.Func, serve func(*call), options ...guard.Option) func(*call) {
	g, handlers := framework.New(lim, key, options...)
	return func(c *call) {
		verdict := g.Check(callRequest{c}, callHeaders{c}, &c.state)
		switch handler, ok := handlers.For(verdict); {
		case verdict.Status == 0:
			if g.NeedsFinish(verdict) {
				defer func() { g.Finish(context.Background(), verdict, c.status) }()
			}
			serve(c)
		case ok:
			handler(c)
		default:
			c.status = verdict.Status
		}
	}
}

// An adapter for another framework shows its requests and headers to a Guard, and
// does what the Verdict says.
func ExampleAdapter() {
	lim, _ := core.NewMemory("calls", core.FixedWindow(core.PerHour(1)))
	serve := middleware(lim, keyfunc.IP(), func(c *call) { c.status = 200 },
		OnDenied(func(c *call) {
			res, _ := c.state.Result()
			fmt.Println(c.sender, "is denied by", res.Name)
		}))

	for range 2 {
		c := &call{sender: "192.0.2.1:4711", reply: map[string]string{}}
		serve(c)
		fmt.Println(c.status, c.reply["X-Ratelimit-Remaining"])
	}
	// Output:
	// 200 0
	// 192.0.2.1:4711 is denied by fixed-1h
	// 0 0
}
