package httpsuite

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// KeyOfAnotherAdapter mounts the Key of each adapter under the middleware of each other
// one: it panics with a message that names both, before the user's function would get a
// nil request. Both maps are by the name of the adapter's package; newKey makes a Key,
// whose function calls called.
func KeyOfAnotherAdapter(t *testing.T, frameworks map[string]Adapter, newKey map[string]func(called func()) keyfunc.Func) {
	called := ""
	keys := map[string]keyfunc.Func{}
	for name, key := range newKey {
		keys[name] = key(func() { called = name })
	}
	for name, framework := range frameworks {
		for other, key := range keys {
			t.Run(other+" under "+name, func(t *testing.T) {
				lim, err := core.NewMemory("api", core.FixedWindow(core.PerMinute(1)))
				if err != nil {
					t.Fatal(err)
				}
				message := ""
				limit := Limit{Limiter: lim, Key: func(r keyfunc.Request) (string, error) {
					defer func() {
						if p := recover(); p != nil {
							message = fmt.Sprint(p)
							panic(p)
						}
					}()
					return key(r)
				}}
				called = ""
				server := framework.Start(t, App{
					Use: []Mount{limit}, Routes: []Route{{Path: "/a"}}, Recover: true, Renders: true,
				})
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/a", nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Transport.RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				server.Close()
				switch {
				case name == other:
					if response.StatusCode != http.StatusOK || called != other || message != "" {
						t.Errorf("status %d, called %q, panic %q", response.StatusCode, called, message)
					}
				case response.StatusCode != http.StatusInternalServerError || called != "":
					t.Errorf("status %d, and the function of %q was called", response.StatusCode, called)
				case !strings.HasPrefix(message, other+": Key wants a ") || !strings.Contains(message, name) ||
					!strings.Contains(message, "use the Key of the same adapter"):
					t.Errorf("panic %q, want one that names %s and %s", message, other, name)
				}
			})
		}
	}
}
