package adapter_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
)

// A call is a request of a framework that has no adapter, for instance a framework for a queue.
type call struct {
	sender string
	status int
	reply  map[string]string // the headers of the answer
	state  adapter.RequestState
}

// A handler serves calls. As in Hertz, its context is an argument of its own.
type handler = func(context.Context, *call)

// A callRequest presents a call to key functions.
type callRequest struct {
	*call

	ctx context.Context
}

func (c callRequest) Context() context.Context   { return c.ctx }
func (callRequest) Method() string               { return "CALL" }
func (callRequest) Path() string                 { return "/" }
func (callRequest) Route() string                { return "" }
func (c callRequest) RemoteAddr() string         { return c.sender }
func (callRequest) Header(string) string         { return "" }
func (callRequest) HeaderValues(string) []string { return nil }
func (callRequest) Query(string) string          { return "" }
func (callRequest) Cookie(string) string         { return "" }
func (c callRequest) Value(key any) any          { return c.ctx.Value(key) }
func (c callRequest) Unwrap() any                { return c.call }
func (c callRequest) Logger() *slog.Logger       { return c.state.Logger() }

// callHeaders are the headers of the answer to a call.
type callHeaders struct{ *call }

func (c callHeaders) Get(name string) string { return c.reply[name] }
func (c callHeaders) Set(name, value string) { c.reply[name] = value }
func (c callHeaders) Del(name string)        { delete(c.reply, name) }

const framework = adapter.Adapter[*call, handler]("calllimit")

// OnDenied is the adapter's option. It takes a handler of the framework.
func OnDenied(h handler) guard.AnswerOption { return framework.OnDenied(h) }

// Key is the adapter's key function. If handlers get no context, use framework.Key instead.
func Key(f func(context.Context, *call) (string, error)) keyfunc.Func { return framework.ContextKey(f) }

// middleware is the adapter. It calls the Guard before each request, and follows the Verdict.
func middleware(lim *core.Limiter, key keyfunc.Func, serve handler, options ...guard.Option) handler {
	g, handlers := framework.New(lim, key, options...)
	return func(ctx context.Context, c *call) {
		verdict := g.Check(callRequest{c, ctx}, callHeaders{c}, &c.state)
		if verdict.Status != 0 {
			refuse(ctx, c, verdict, handlers)
			return
		}
		if g.NeedsFinish(verdict) {
			defer func() { g.Finish(ctx, verdict, c.status) }() // the status must be 500 after a panic
		}
		serve(cmp.Or(verdict.Context, ctx), c) // the Context ends if slots are lost
	}
}

// refuse answers a call that is not served, according to the Verdict.
func refuse(ctx context.Context, c *call, verdict adapter.Verdict, handlers adapter.Handlers[handler]) {
	if handler, ok := handlers.For(verdict); ok {
		handler(ctx, c)
		return
	}
	c.status = verdict.Status
}

// An Answerer takes the options of a middleware that are about answers.
var answerer, answerHandlers = framework.NewAnswerer()

// answer is the adapter's Answerer. It answers a call whose handler has called a limiter, unless the
// call must be served, and reports whether it did.
func answer(ctx context.Context, c *call, decision core.Decision, err error) (answered bool) {
	verdict := answerer.Answer(ctx, callHeaders{c}, &c.state, decision, err)
	if verdict.Status != 0 {
		refuse(ctx, c, verdict, answerHandlers)
	}
	return verdict.Status != 0
}

// A handler calls a limiter itself, because only the handler knows the cost of the call. It answers
// by the adapter's Answerer.
func ExampleAnswerer() {
	lim, _ := core.NewMemory("rows", core.FixedWindow(core.PerHour(10)))
	for _, rows := range []int64{6, 5, 4} {
		ctx, c := context.Background(), &call{sender: "192.0.2.1:4711", status: 200, reply: map[string]string{}}
		res, err := lim.AllowN(ctx, "tenant:acme", rows)
		if !answer(ctx, c, res, err) {
			fmt.Println("serve", rows, "rows")
		}
		fmt.Println(c.status, c.reply["X-Ratelimit-Remaining"])
	}
	// Output:
	// serve 6 rows
	// 200 4
	// 429 4
	// serve 4 rows
	// 200 0
}

// An adapter for another framework passes its requests and headers to a Guard, and follows the
// Verdict.
func ExampleAdapter() {
	lim, _ := core.NewMemory("calls", core.FixedWindow(core.PerHour(1)))
	type tenant struct{}
	byTenant := Key(func(ctx context.Context, _ *call) (string, error) {
		name, ok := ctx.Value(tenant{}).(string)
		if !ok {
			return "", keyfunc.ErrNoKey // the request is then counted by the address of its peer
		}
		return "tenant:" + name, nil
	})
	serve := middleware(lim, byTenant, func(_ context.Context, c *call) { c.status = 200 },
		OnDenied(func(_ context.Context, c *call) {
			res, _ := c.state.Result()
			fmt.Println(c.sender, "is denied by", res.LimitName)
		}))

	ctx := context.WithValue(context.Background(), tenant{}, "acme")
	for range 2 {
		c := &call{sender: "192.0.2.1:4711", reply: map[string]string{}}
		serve(ctx, c)
		fmt.Println(c.status, c.reply["X-Ratelimit-Remaining"])
	}
	// Output:
	// 200 0
	// 192.0.2.1:4711 is denied by fixed-1h
	// 0 0
}
