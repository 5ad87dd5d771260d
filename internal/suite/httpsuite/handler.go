package httpsuite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
)

// A Handler describes the behavior of a native handler. The zero Handler writes "served" and leaves the status to the
// framework.
type Handler struct {
	Do Action
	// Status is set explicitly if it is not 0.
	Status int
	// Body is the body to write; the default is the text of the status.
	Body string
	// Calls counts the calls, if not nil.
	Calls *atomic.Int64
	// Takes is how long the handler works before it does anything else.
	Takes time.Duration
	// Gate is the channel that Stream and Wait wait for.
	Gate <-chan struct{}
	// Costs are set before anything else. Later are set by Stream and Upgrade at their end.
	Costs, Later []int64
	// Probe returns the text that Inspect writes.
	Probe func(http.ResponseWriter) string
	// Uploaded is called once Upload has parsed the form.
	Uploaded func()
	// Asks are the calls of limiters that the handler makes first, one after the other. After each, it passes the decision
	// to the adapter's Answerer, which is made by Answers, and returns if the Answerer has answered.
	Asks    []Ask
	Answers Answers
}

// An Ask calls a limiter for a request, which has the context ctx.
type Ask func(ctx context.Context) (core.Decision, error)

// Answers has the options of the adapter's Answerer, and native handlers if they are not nil.
type Answers struct {
	Options           []guard.AnswerOption
	OnDenied, OnError *Handler
}

// AnswerOptions returns all options of a, including the framework's handlers.
func AnswerOptions[H any](a Answers, native func(Handler) H, onDenied, onError func(H) guard.AnswerOption) []guard.AnswerOption {
	options := append([]guard.AnswerOption(nil), a.Options...)
	if a.OnDenied != nil {
		options = append(options, onDenied(native(*a.OnDenied)))
	}
	if a.OnError != nil {
		options = append(options, onError(native(*a.OnError)))
	}
	return options
}

// An Action is something that a handler can do.
type Action int

// The actions.
const (
	Write      Action = iota // write Body with Status
	Silent                   // return, and write nothing
	Fail                     // fail with Status, by the framework's own error if it has one
	Throw                    // fail with errTeapot, which the app renders
	ThrowGone                // fail with an error that the app renders once the client has left
	Panic                    // panic before anything is written
	PanicLate                // panic after something was written
	Stream                   // write and flush "one", wait for Gate, write "two"
	Wait                     // wait for Gate, then write
	AwaitGone                // wait until the client has left
	AwaitCause               // wait until the request's context has ended, and write why
	Upgrade                  // take over the connection and echo it
	ShowResult               // write what the adapter's Result returns
	Inspect                  // write what Probe returns for the http.ResponseWriter
	Upload                   // parse a form with files, and keep at most a byte of them in memory
	AskLate                  // write Body, then make the calls of Asks, and write Body again if they all admit
)

// A Context has the parts of a framework's request that a [Handler] needs.
type Context interface { //nolint:interfacebloat // a framework has many more
	// Write writes body with status; it sets no status if that is 0.
	Write(status int, body string) error
	// Fail fails with status.
	Fail(status int) error
	// Throw passes err to the code that renders the app's errors.
	Throw(err error) error
	// Stream sends first at once, calls more, and then sends second.
	Stream(first string, more func(), second string) error
	// Upgrade switches protocols and then talks.
	Upgrade(talk func(io.ReadWriter)) error
	// Gone is closed when the client leaves.
	Gone() <-chan struct{}
	// Context returns the request's context, as a handler gets it.
	Context() context.Context
	// Upload parses the form of the request.
	Upload() error
	// Writer returns the response writer as a handler gets it, or nil.
	Writer() http.ResponseWriter
	// Result is the adapter's Result.
	Result() (core.Result, bool)
	// SetCost is the adapter's SetCost.
	SetCost(n int64)
	// Answer is the method of the adapter's Answerer.
	Answer(decision core.Decision, err error) (answered bool, answer error)
	// CostSetter returns a function that sets the cost even after a handler of the framework may have returned.
	CostSetter() func(n int64)
}

var errTeapot = errors.New("the app's own error")

// A goneError is an errTeapot whose rendering waits until the client has left.
type goneError struct{ gone <-chan struct{} }

func (goneError) Error() string { return errTeapot.Error() }
func (goneError) Unwrap() error { return errTeapot }

// Serve handles a request as h describes.
func (h Handler) Serve(c Context) error {
	if h.Calls != nil {
		h.Calls.Add(1)
	}
	for _, n := range h.Costs {
		c.SetCost(n)
	}
	time.Sleep(h.Takes)
	if h.Do == AskLate {
		if err := c.Write(h.Status, h.body()); err != nil {
			return err
		}
	}
	for _, ask := range h.Asks {
		decision, err := ask(c.Context())
		if answered, err := c.Answer(decision, err); answered {
			return err
		}
	}
	later := c.CostSetter()
	setLater := func() {
		for _, n := range h.Later {
			later(n)
		}
	}
	switch h.Do {
	case Silent:
		return nil
	case Fail:
		return c.Fail(h.Status)
	case Throw:
		return c.Throw(fmt.Errorf("wrapped: %w", errTeapot))
	case ThrowGone:
		return c.Throw(fmt.Errorf("wrapped: %w", goneError{c.Gone()}))
	case PanicLate:
		_ = c.Write(http.StatusOK, "partial") // an error does not matter: the panic follows
		panic("late")
	case Panic:
		panic("early")
	case Stream:
		return c.Stream("one\n", func() { <-h.Gate; setLater() }, "two\n")
	case Upgrade:
		return c.Upgrade(func(conn io.ReadWriter) {
			_, _ = io.Copy(conn, conn) // until the client hangs up
			setLater()
		})
	case ShowResult:
		return c.Write(h.Status, show(c.Result()))
	case Inspect:
		return c.Write(h.Status, h.Probe(c.Writer()))
	case Upload:
		if err := c.Upload(); err != nil {
			return c.Write(http.StatusBadRequest, err.Error())
		}
		h.Uploaded()
	case Wait:
		<-h.Gate
	case AwaitGone:
		<-c.Gone()
	case AwaitCause:
		<-c.Context().Done()
		return c.Write(h.Status, context.Cause(c.Context()).Error())
	case AskLate:
		return c.Write(0, h.body())
	case Write:
	}
	return c.Write(h.Status, h.body())
}

func (h Handler) body() string {
	switch {
	case h.Body != "":
		return h.Body
	case h.Status == 0:
		return "served"
	case h.Status == http.StatusNoContent:
		return ""
	}
	return http.StatusText(h.Status)
}

func show(res core.Result, ok bool) string {
	if !ok {
		return "no result"
	}
	return fmt.Sprintf("%s allowed=%t limit=%d remaining=%d delay=%v", res.LimitName, res.Allowed, res.Limit, res.Remaining, res.Delay)
}

// Render returns the status and body with which an [App] that Renders answers err. The framework would answer it with the
// given status.
func Render(err error, status int) (int, string) {
	var denied *guard.DeniedError
	var gone goneError
	switch {
	case errors.As(err, &gone):
		<-gone.gone
		time.Sleep(10 * time.Millisecond) // time for other goroutines to notice it, too
		return http.StatusTeapot, "teapot"
	case errors.Is(err, errTeapot):
		return http.StatusTeapot, "teapot"
	case errors.As(err, &denied):
		return status, "denied: " + show(denied.Result, true) + "\n" + string(guard.Problem(status, err))
	}
	return status, "rendered: " + http.StatusText(status)
}
