// Package limitsfile limits requests by the limits in a file, which may change while the service runs:
//
//	limits:
//	- token_bucket 100/1m burst=200 name=requests
//	- fixed_window 5000/1d aligned
package limitsfile

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// Limit serves next by the limits in the file at path, until ctx ends. All other options of the limiter, such as its name, are those of
// lim. The error says why the file cannot be read, or what is wrong in it.
func Limit(ctx context.Context, path string, lim *core.Limiter, key keyfunc.Func, next http.Handler) (http.Handler, error) {
	file := &limitsFile{path: path, lim: lim}
	if err := file.read(); err != nil {
		return nil, err
	}
	go file.follow(ctx)
	current := guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return file.now.Load(), nil })
	return httplimit.Middleware(lim, key, current)(next), nil
}

// A limitsFile is a file of limits, and the limiter that decides by them.
type limitsFile struct {
	path string
	lim  *core.Limiter                // from which now is derived
	now  atomic.Pointer[core.Limiter] // decides by the limits that were read last
	text []byte                       // the text that was read last, right or wrong
	why  string                       // the reason why the file could not be read the last time; empty if it could
}

// read reads the file, if it has changed. If the text is wrong, the limits stay as they are. An error is returned once: if the file still
// cannot be read for the same reason, or still has the same wrong text, read returns nil.
func (f *limitsFile) read() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		known := err.Error() == f.why
		if f.why = err.Error(); known {
			return nil
		}
		return err
	}
	f.why = ""
	if bytes.Equal(text, f.text) {
		return nil
	}
	f.text = text
	var config struct {
		Limits []core.Limit `yaml:"limits"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return err
	}
	lim, err := f.lim.With(config.Limits...)
	if err != nil {
		return err
	}
	f.now.Store(lim)
	for _, limit := range config.Limits {
		if limit.Capacity() == 0 { // this may be intended, to close a service, or a mistake
			f.lim.Logger().Warn("a limit of 0 denies every request", "file", f.path, "limit", limit.String())
		}
	}
	return nil
}

// follow reads the file every ten seconds, and logs each mistake once.
func (f *limitsFile) follow(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.read(); err != nil {
			f.lim.Logger().Error("the limits stay as they are", "file", f.path, "error", err)
		}
	}
}
