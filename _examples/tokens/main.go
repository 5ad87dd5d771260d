// Command tokens serves an API whose requests cost a number of tokens that is known only
// at the end, as that of a language model does: each API key may use 1000 tokens a
// minute. Without -redis it starts an embedded Redis, so that
// "go run ./_examples/tokens" needs nothing else.
package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/demo"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

const (
	perMinute = 1000 // tokens, for each API key
	estimate  = 200  // tokens, reserved while an answer is written
)

func main() {
	demo.Demo{
		Name: "tokens",
		Build: func(app *demo.App) (demo.Server, error) {
			// On a busy laptop a slow reply must not be taken for an outage.
			lim, err := core.New(app.Redis, "tokens", core.TokenBucket(core.PerMinute(perMinute)), core.Timeout(5*time.Second))
			if err != nil {
				return nil, err
			}
			return demo.HTTPServer(routes(lim)), nil
		},
		Try: func(addr string) string {
			return fmt.Sprintf(`  curl -i -H 'X-API-Key: demo-key-1' -d 'why is the sky blue' http://%[1]s/answer
  curl -i -H 'X-API-Key: demo-key-1' -d "$(seq 150)" http://%[1]s/answer
  curl -i -H 'X-API-Key: demo-key-1' http://%[1]s/usage
`, addr)
		},
	}.Main()
}

func routes(lim *core.Limiter) http.Handler {
	byKey := keyfunc.APIKey("X-API-Key", keyfunc.Known(demo.Issued))
	limited := httplimit.Middleware(lim, byKey,
		guard.CostAfter(),
		guard.Cost(func(keyfunc.Request) int64 { return estimate }),
		guard.CountIf(func(status int) bool { return status == http.StatusOK })) // errors are free
	shown := httplimit.Middleware(lim, byKey,
		guard.Cost(func(keyfunc.Request) int64 { return 0 })) // sets the headers, and charges nothing

	mux := http.NewServeMux()
	mux.Handle("POST /answer", authenticate(limited(http.HandlerFunc(answer))))
	mux.Handle("GET /usage", authenticate(shown(http.HandlerFunc(usage))))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	return mux
}

// answer streams an answer. A token is a word, of the question or of the answer.
func answer(w http.ResponseWriter, r *http.Request) {
	question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4096))
	words := strings.Fields(string(question))
	if err != nil || len(words) == 0 {
		http.Error(w, "ask something, in at most 4096 bytes", http.StatusBadRequest)
		return
	}
	response := http.NewResponseController(w)
	tokens := int64(len(words))
	for word := range model(words) {
		tokens++
		httplimit.SetCost(r.Context(), tokens) // so far: the client may leave at any time
		if _, err := fmt.Fprintln(w, word); err != nil {
			return
		}
		if err := response.Flush(); err != nil {
			return
		}
	}
	_, _ = fmt.Fprintf(w, "(%d tokens)\n", tokens)
}

// model answers with ten words for each word of the question.
func model(question []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range 10 * len(question) {
			if !yield(question[i%len(question)]) {
				return
			}
		}
	}
}

// usage shows what is left, as the headers do.
func usage(w http.ResponseWriter, r *http.Request) {
	if res, ok := httplimit.Result(r.Context()); ok {
		_, _ = fmt.Fprintf(w, "%d of %d tokens left; all of them in %v\n", res.Remaining, res.Limit, res.ResetAfter.Round(time.Second))
	}
}

// authenticate lets pass who has an API key that was issued.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !demo.Issued(r.Header.Get("X-API-Key")) {
			w.Header().Set("Content-Type", guard.ProblemType)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write(guard.Problem(http.StatusUnauthorized, nil))
			return
		}
		next.ServeHTTP(w, r)
	})
}
