// Package recipes has the code that docs/recipes.md shows. The code is in Examples, which run against an embedded
// Redis.
package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/demo/embedded"
)

// rdb is the Redis client of all Examples. The server's clock stands still, so that no units are refilled.
var rdb *redis.Client

func TestMain(m *testing.M) {
	server, err := embedded.Start()
	if errors.Is(err, embedded.ErrBits) {
		fmt.Println("skipped:", err)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // some Examples cause outages and errors, which are logged
	server.SetTime(time.Unix(1_800_000_000, 0))
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	status := m.Run()
	_ = rdb.Close()
	server.Close()
	os.Exit(status)
}

// show prints the status of a response and some of its headers.
func show(w *httptest.ResponseRecorder, headers ...string) {
	line := fmt.Sprint(w.Code)
	for _, name := range headers {
		line = strings.TrimRight(line+" "+w.Header().Get(name), " ")
	}
	fmt.Println(line)
}

// newMux returns the handler that the recipes limit.
func newMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") })
	return mux
}

// send sends a request from 192.0.2.1. Each header is written like "X-Api-Key: key-1".
func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	return send(h, http.MethodGet, path, "", headers...)
}
