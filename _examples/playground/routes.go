package main

import (
	"embed"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/redislimit/redislimit/internal/demo/look"
)

//go:embed web
var web embed.FS

// policy allows the page to load only files of this server, and no inline scripts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (p *playground) routes() http.Handler {
	files, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // not reached: "web" is a valid path
	}
	mux := http.NewServeMux()
	mux.Handle("GET /palette.css", protect(http.HandlerFunc(palette)))
	mux.Handle("GET /", protect(http.FileServerFS(files)))
	mux.HandleFunc("GET /events", sameSite(p.follow))
	mux.HandleFunc("PUT /sessions/{id}", p.adjust)
	mux.HandleFunc("POST /sessions/{id}/redis/{state}", p.stop)
	mux.HandleFunc("POST /hit", p.hit)
	mux.HandleFunc("POST /hit/{lane}", p.hit)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return http.NewCrossOriginProtection().Handler(mux)
}

// sameSite refuses requests that a page of another site makes a browser send. It is like [http.CrossOriginProtection], but also for GET: each
// stream of events is a session, and a page of another site could take all sessions.
func sameSite(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		posted := r.Clone(r.Context())
		posted.Method = http.MethodPost
		if err := http.NewCrossOriginProtection().Check(posted); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// noNames refuses requests whose host is a name other than localhost and the names in own. Otherwise a site could make its name
// resolve to this machine, and would then have the same origin (DNS rebinding).
func noNames(next http.Handler, own ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]") // the host has no port
		}
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" && !slices.Contains(own, host) {
			http.Error(w, "The playground does not know this name of its host: open it by its address, or give the name in -addr.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// protect sets the security headers of the page and its files.
func protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // the page of the next build may differ
		next.ServeHTTP(w, r)
	})
}

// palette serves the colors that the page shares with the pictures of the documents.
func palette(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write([]byte(look.CSS))
}
