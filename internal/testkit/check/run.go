package check

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// lastLines is how many lines of the log are printed after a failure.
const lastLines = 20

// Run is like m.Run, but keeps the lines of the default logger, among which a failure would be hard to find. After a
// failure it prints the last lines.
func Run(m *testing.M) (status int) {
	logged, old := &Log{}, slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(logged, nil)))
	status = m.Run()
	slog.SetDefault(old)
	if lines := strings.SplitAfter(logged.String(), "\n"); status != 0 && len(lines) > 1 {
		lines = lines[:len(lines)-1]
		_, _ = fmt.Fprintf(os.Stderr, "%d lines were logged; the last are:\n%s", len(lines), strings.Join(lines[max(0, len(lines)-lastLines):], ""))
	}
	return status
}
