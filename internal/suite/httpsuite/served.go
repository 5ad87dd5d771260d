package httpsuite

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// testTimeout is when a test gives up waiting for something that should happen at once.
const testTimeout = 30 * time.Second

// A servedApp is an [App] that a testbed serves.
type servedApp struct {
	*testbed
	server *Server
	close  func()
}

func (b *testbed) serve(app App) *servedApp {
	b.Helper()
	server := b.adapter.Start(b.T, app)
	server.Transport.DisableCompression = true // so that a response is compressed only if the test asks for it
	s := &servedApp{b, server, sync.OnceFunc(server.Close)}
	b.Cleanup(s.close)
	return s
}

// behind serves routes behind limit, which is mounted for the whole app. Without routes, it serves /a and /b.
func (b *testbed) behind(limit Limit, routes ...Route) *servedApp {
	b.Helper()
	if len(routes) == 0 {
		routes = []Route{{Path: "/a"}, {Path: "/b"}}
	}
	return b.serve(App{Use: []Mount{Auth{}, limit}, Routes: routes, Recover: true, Renders: true})
}

// get sends a request with header lines such as "Name: value".
func (s *servedApp) get(path string, lines ...string) answer {
	s.Helper()
	return s.send(http.MethodGet, path, lines...)
}

func (s *servedApp) send(method, path string, lines ...string) answer {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	defer cancel()
	ans, err := s.try(ctx, method, path, lines...)
	if err != nil {
		s.Fatal(err)
	}
	return ans
}

// try sends a request that may fail. It may be called from any goroutine.
func (s *servedApp) try(ctx context.Context, method, path string, lines ...string) (answer, error) {
	req, err := s.request(ctx, method, path, lines...)
	if err != nil {
		return answer{}, err
	}
	return s.roundTrip(req)
}

// roundTrip sends req, and follows no redirects.
func (s *servedApp) roundTrip(req *http.Request) (answer, error) {
	began := time.Now()
	resp, err := s.server.Transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(resp.Body)
	return answer{
		testbed: s.testbed, what: req.Method + " " + req.URL.Path, proto: resp.Proto,
		status: resp.StatusCode, header: resp.Header, body: string(body), took: time.Since(began),
	}, errors.Join(err, resp.Body.Close())
}

func (s *servedApp) request(ctx context.Context, method, path string, lines ...string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.server.URL+path, nil)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	return req, nil
}

// start sends a request in the background. The client leaves when leave is called. done receives the response, or an answer
// with the error as its body.
func (s *servedApp) start(path string) (leave func(), done <-chan answer) {
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	answers := make(chan answer, 1)
	go func() {
		defer cancel()
		ans, err := s.try(ctx, http.MethodGet, path)
		if err != nil {
			ans = answer{testbed: s.testbed, what: "GET " + path, body: err.Error()}
		}
		answers <- ans
	}()
	return cancel, answers
}

// user returns the header line that signs in the user with this name.
func user(name string) string { return UserHeader + ": " + name }
