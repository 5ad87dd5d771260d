// Package admin shows what rate limiters do, on a page for the people who run them: who is denied,
// how much, how fast decisions are, how Redis is. A key can be looked up, reset, blocked and
// unblocked.
//
//	watch := admin.NewWatch()
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.ObserveKeys(watch.Observe))
//	watch.Add(lim)
//	http.Handle("/limits/", admin.Handler(mayAdminister, watch))
//
// What it counts is that of this process, of the last minutes, in bounded memory. Of Redis it asks
// only for a key that is looked up or changed; it never scans.
package admin

import (
	"cmp"
	"embed"
	"encoding/json"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/redislimit/redislimit/internal/demo/look"
)

//go:embed web
var web embed.FS

// policy lets the page load only files of this handler, run no inline script, write no HTML by
// script, and be in no frame: a page around it could have its buttons clicked.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler returns the page of what watch has seen, and the JSON beside it. Mount it at any path
// that ends with a slash. It changes nothing by GET, and refuses a POST of another origin.
//
// allow is asked for each request, and says who may see all keys, and change them: let it check a
// session of your administrators. It must not let in all that a network or a machine sends:
// browsers there send requests for any site. Neither allow nor watch can be nil.
//
//	GET   ./           the page
//	GET   ./data.json  what it shows
//	POST  ./lookup     {"limiter": "api", "key": "user:alice"}, or {"limiter": "api", "parts": [{"by": "user", "value": "alice"}]}
//	POST  ./reset      the same
//	POST  ./block      the same, with "for": "1h"; see [core.Limiter.Block]
//	POST  ./unblock    the same
//
// What is posted is JSON, and its answer is how the key is then. Each change is logged by the
// limiter's logger, with the request's context, the key and the peer's address.
func Handler(allow func(*http.Request) bool, watch *Watch) http.Handler {
	switch {
	case allow == nil:
		panic("admin: Handler(nil, ...): want a function that says who may see all keys and change them")
	case watch == nil:
		panic("admin: Handler: the Watch is nil: pass what NewWatch returned")
	}
	return &handler{allow, watch, http.NewCrossOriginProtection()}
}

type handler struct {
	allow  func(*http.Request) bool
	watch  *Watch
	origin *http.CrossOriginProtection
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store") // keys are personal data
	if !h.allow(r) {
		http.Error(w, "You may not see this.", http.StatusForbidden)
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] // wherever it is mounted
	_, acts := actions[name]
	switch {
	case acts && r.Method == http.MethodPost:
		h.act(w, r, name)
	case acts:
		header.Set("Allow", "POST")
		http.Error(w, "It takes POST.", http.StatusMethodNotAllowed)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "It takes GET.", http.StatusMethodNotAllowed)
	case name == "data.json":
		reply(w, http.StatusOK, h.watch.data())
	case name == "palette.css":
		header.Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write([]byte(look.CSS))
	default:
		file(w, cmp.Or(name, "index.html"))
	}
}

// file replies with a file of the page. An http.FileServer would take Cache-Control away where
// there is none.
func file(w http.ResponseWriter, name string) {
	content, err := web.ReadFile("web/" + name)
	if err != nil {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	_, _ = w.Write(content) //nolint:gosec // a file of ours
}

func reply(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails if the client has left
}
