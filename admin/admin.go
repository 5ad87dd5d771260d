// Package admin provides a web page for operators. It shows which requests rate limiters deny, how many,
// how fast decisions are, and the state of Redis. On the page, a key can be looked up, reset, blocked and
// unblocked.
//
//	watch := admin.NewWatch()
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.ObserveKeys(watch.Observe))
//	watch.Add(lim)
//	http.Handle("/limits/", admin.Handler(mayAdminister, watch))
//
// The page shows what this process has counted in the last minutes, in bounded memory. It calls Redis only
// for a key that is looked up or changed, and never scans.
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

// policy lets the page load only the files of this handler. The page may not run inline scripts or write
// HTML by script. It may not be shown in a frame, because the page around the frame could trick an
// administrator into clicking its buttons.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler returns a handler for the page, which shows what watch has counted, and for the JSON that the
// page uses. Mount it at any path that ends with a slash. A GET changes nothing, and a POST from another
// origin is refused.
//
// allow is called for each request. It must report whether the sender of the request is allowed to see
// and change all keys: let it check a session of your administrators. It must not allow every request
// that comes from a certain network or machine, because the browsers there also send requests that other
// sites make them send. Handler panics if allow or watch is nil.
//
//	GET   ./           the page
//	GET   ./data.json  the page's data
//	POST  ./lookup     {"limiter": "api", "key": "user:alice"}, or {"limiter": "api", "parts": [{"by": "user", "value": "alice"}]}
//	POST  ./reset      the same
//	POST  ./block      the same, with "for": "1h"; see [core.Limiter.Block]
//	POST  ./unblock    the same
//
// The body of a POST is JSON, and the response is the state of the key afterwards. The limiter's logger
// logs each change, even one that fails, with the request's context, the key and the peer's address.
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
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] // wherever the handler is mounted
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

// file replies with a file of the page. It does not use http.FileServer, which removes Cache-Control from
// the response to a missing file.
func file(w http.ResponseWriter, name string) {
	content, err := web.ReadFile("web/" + name)
	if err != nil {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	_, _ = w.Write(content) //nolint:gosec // a file of this package
}

func reply(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails if the client has left
}
