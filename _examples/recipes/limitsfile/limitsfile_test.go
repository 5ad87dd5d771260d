package limitsfile_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/_examples/recipes/limitsfile"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// lines is a log: the channel contains its lines.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	l <- string(text)
	return len(text), nil
}

func (l lines) all() (all []string) {
	for len(l) > 0 {
		all = append(all, <-l)
	}
	return all
}

// gone is the text of a step that removes the file.
const gone = "removed"

// TestLimitsFile changes the file, makes mistakes in it, and removes it, and checks the limits and the log.
func TestLimitsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		log := make(lines, 100)
		lim := core.MustNewMemory("api", core.TokenBucket(core.PerMinute(1)), core.Logger(slog.New(slog.NewTextHandler(log, nil))))
		if _, err := limitsfile.Limit(t.Context(), path, lim, keyfunc.IP(), http.NotFoundHandler()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without the file: got error %v, want os.ErrNotExist", err)
		}
		write("limits:\n- token_bucket 100/1m burst=200 name=requests\n- fixed_window 5000/1d aligned\n")
		handler, err := limitsfile.Limit(t.Context(), path, lim, keyfunc.IP(), http.NotFoundHandler())
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ text, limit, left, logged string }{
			{"", "200", "199", ""},
			{"limits: [token_bucket 100/1m burst=300 name=requests]", "300", "299", ""},
			{"limits: [token_bucket 100/1m burst=0 name=requests]", "300", "299", "burst=0: allowed is 1 to 1000000000"},
			{"limits: []", "300", "299", "no limit given"},
			{"limits: [", "300", "299", "yaml"},
			{"limits: [token_bucket 100/1m burst=400 name=requests]", "400", "399", ""},
			{gone, "400", "399", "no such file"},
			{"", "400", "399", ""}, // the file is still missing, which was logged
			{"limits: [token_bucket 100/1m burst=400 name=requests]", "400", "399", ""},
			{gone, "400", "399", "no such file"},
			{"limits: [token_bucket 0/1m]", "0", "0", "a limit of 0 denies every request"},
			{"", "0", "0", ""},
		} {
			switch step.text {
			case "":
			case gone:
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			default:
				write(step.text)
			}
			time.Sleep(time.Minute) // takes no real time, and refills the bucket
			synctest.Wait()
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if limit, left := w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"); limit != step.limit || left != step.left {
				t.Errorf("%q: got %s of %s left, want %s of %s", step.text, left, limit, step.left, step.limit)
			}
			if got := log.all(); len(got) != min(1, len(step.logged)) || !strings.Contains(strings.Join(got, ""), step.logged) {
				t.Errorf("%q: got the log lines %q, want one with %q, or none", step.text, got, step.logged)
			}
		}
	})
}
