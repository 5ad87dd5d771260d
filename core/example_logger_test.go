package core_test

import (
	"log/slog"
	"os"

	"github.com/redislimit/redislimit/core"
)

// What belongs to a Limiter can log where it does.
func ExampleLimiter_Logger() {
	logger := slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(100)), core.Logger(logger))

	lim.Logger().Info("the limits are read", "limiter", lim.Name())
	// Output: {"level":"INFO","msg":"the limits are read","limiter":"api"}
}
