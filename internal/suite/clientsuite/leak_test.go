package clientsuite

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/mini"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestCredentialStaysSecret makes requests with a credential that are admitted, denied and undecided. Then it searches for
// the credential in everything that results: the data that is sent to Redis and stored there, the responses, the events and
// the log.
func TestCredentialStaysSecret(t *testing.T) {
	const secret = "Sk-51H8xyz"
	var seen bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&seen, &slog.HandlerOptions{Level: slog.LevelDebug})))
	server := mini.Redis(t)
	client := redisclient.New(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer func() { _ = client.Close() }()
	client.AddHook(spyHook{&seen})

	for i, f := range []keyfunc.Func{
		keyfunc.APIKey("X-API-Key"), keyfunc.Bearer(), keyfunc.Cookie("session"), keyfunc.Query("key"),
		keyfunc.APIKey("X-API-Key", keyfunc.Secret("pepper of 16 bytes or more")), keyfunc.APIKey("X-API-Key", keyfunc.Known(func(string) bool { return false })),
		keyfunc.Join(keyfunc.Bearer(), keyfunc.IP()),
	} {
		lim := core.MustNew(client, fmt.Sprint("leak", i), core.FixedWindow(core.PerHour(1)), core.FailClosed(), core.DenyCache(0),
			core.Observe(func(_ context.Context, e core.Event) { fmt.Fprintf(&seen, "%+v\n", e) }))
		handler := httplimit.Middleware(lim, f, guard.Headers(guard.XRateLimit|guard.IETF))(http.NotFoundHandler())
		for _, fault := range []string{"", "", "ERR broken"} {
			server.SetError(fault)
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a?key="+secret, nil)
			r.Header.Set("X-API-Key", secret)
			r.Header.Set("Authorization", "Bearer "+secret)
			r.AddCookie(&http.Cookie{Name: "session", Value: secret})
			handler.ServeHTTP(w, r)
			fmt.Fprintln(&seen, w.Code, w.Header(), w.Body)
		}
		server.SetError("")
	}
	fmt.Fprintln(&seen, server.Dump())
	for _, status := range []string{"404 ", "429 ", "503 "} {
		if !strings.Contains(seen.String(), "\n"+status) {
			t.Errorf("no request was answered with the status %s, want some", status)
		}
	}
	if at := strings.Index(seen.String(), secret); at >= 0 {
		t.Errorf("the output contains the credential: ...%q", seen.String()[max(0, at-200):at+20])
	}
}

// A spyHook records the commands that are sent to Redis.
type spyHook struct{ into *bytes.Buffer }

func (spyHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s spyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fmt.Fprintln(s.into, cmd.Args()...)
		return next(ctx, cmd)
	}
}

func (spyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
