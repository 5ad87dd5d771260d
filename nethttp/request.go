package httplimit

import (
	"context"
	"net/http"
)

// A request is what key functions see of an *http.Request. It is one pointer, so
// that it costs no allocation.
type request struct{ r *http.Request }

func (q request) Context() context.Context          { return q.r.Context() }
func (q request) Method() string                    { return q.r.Method }
func (q request) Path() string                      { return q.r.URL.Path }
func (q request) Route() string                     { return q.r.Pattern }
func (q request) RemoteAddr() string                { return q.r.RemoteAddr }
func (q request) Header(name string) string         { return q.r.Header.Get(name) }
func (q request) HeaderValues(name string) []string { return q.r.Header.Values(name) }
func (q request) Query(name string) string          { return q.r.URL.Query().Get(name) }
func (q request) Value(key any) any                 { return q.r.Context().Value(key) }
func (q request) Unwrap() any                       { return q.r }

func (q request) Cookie(name string) string {
	c, err := q.r.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}
