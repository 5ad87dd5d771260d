package httpsuite

import (
	"fmt"
	"log/slog"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// loggerCases test where the middleware and key functions log.
func loggerCases() []testCase {
	return []testCase{{"Logger", logger, nil}}
}

// logger gives the limiter a logger of its own. For each cause it must get one line with the limiter's name, however many
// requests there are, and the default logger must get none.
func logger(b *testbed) {
	for cause, limit := range map[string]Limit{
		"which IP() does not use":  {Key: keyfunc.IP()},
		"guard.Fallback":           {Key: keyfunc.APIKey("X-Nobody")},
		"secret detail":            {Key: b.broken().Key},
		"after the authentication": {Key: keyfunc.User("nobody")},
		"peer's address instead":   {Key: func(keyfunc.Request) (string, error) { return "", fmt.Errorf("%w: never", keyfunc.ErrNoKey) }},
		"by the Fallback instead": {
			Key:     func(keyfunc.Request) (string, error) { return "", fmt.Errorf("%w: never", keyfunc.ErrNoKey) },
			Options: []guard.Option{guard.Fallback(keyfunc.Global())},
		},
		"charged 1 instead": {
			Key:     keyfunc.Global(),
			Options: []guard.Option{estimate(-1)},
		},
		`can never be admitted; this is logged once" limiter=api limit=fixed-1m capacity=9 cost=10`: {
			Key:     keyfunc.Global(),
			Options: []guard.Option{estimate(10)},
		},
	} {
		b.each(cause, func(b *testbed) {
			var own logs
			limit.Limiter = b.limiter(core.FixedWindow(core.PerMinute(9)), core.Logger(slog.New(slog.NewTextHandler(&own, nil))))
			s := b.behind(limit)
			for range 3 {
				if cause == "peer's address instead" || cause == "after the authentication" { // a request through a proxy would be a second cause
					s.get("/a")
				} else {
					s.get("/a", "X-Forwarded-For: 203.0.113.9")
				}
			}
			if n := own.Count("level="); n != 1 || own.Count(cause) != 1 || own.Count("limiter=api") != 1 {
				b.Errorf("%d lines in the limiter's logger, want one with %q: %s", n, cause, own.String())
			}
			if b.logs.Count(cause) > 0 {
				b.Errorf("the default logger has %s, want no line about %q", b.logs.String(), cause)
			}
		})
	}
}
