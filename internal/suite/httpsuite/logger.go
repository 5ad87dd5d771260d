package httpsuite

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// loggerCases are about where the middleware and key functions log.
func loggerCases() []testCase {
	return []testCase{{"Logger", logger, nil}}
}

// logger gives the limiter a logger of its own: there is one line in it for each
// cause, with the limiter's name, and nothing in the default logger.
func logger(b *testbed) {
	for cause, limit := range map[string]Limit{
		"TrustedProxies":         {Key: keyfunc.IP()},
		"secret detail":          {Key: b.broken().Key},
		"peer's address instead": {Key: func(keyfunc.Request) (string, error) { return "", fmt.Errorf("%w: never", keyfunc.ErrNoKey) }},
		"charged 1 instead": {
			Key:     keyfunc.Global(),
			Options: []guard.Option{guard.Cost(func(keyfunc.Request) int64 { return -1 })},
		},
	} {
		b.each(cause, func(b *testbed) {
			var own logs
			limit.Limiter = b.limiter(core.FixedWindow(core.PerMinute(9)), core.Logger(slog.New(slog.NewTextHandler(&own, nil))))
			b.behind(limit).send(http.MethodGet, "/a", "X-Forwarded-For: 203.0.113.9")
			if n := own.count("level="); n != 1 || own.count(cause) != 1 || own.count("limiter=api") != 1 {
				b.Errorf("%d lines in the limiter's logger, want one with %q: %s", n, cause, own.text.String())
			}
			if b.logs.count("level=") > 0 {
				b.Errorf("the default logger has %s", b.logs.text.String())
			}
		})
	}
}
