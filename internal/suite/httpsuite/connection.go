package httpsuite

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core/guard"
)

// connectionCases test responses that are more than a body.
func connectionCases() []testCase {
	return []testCase{
		{"Stream", stream, nil},
		{"HTTP2", http2, []Ability{HTTP2}},
		{"Uploads", uploads, nil},
	}
}

// eachWriter runs a case with a plain limit of n, and with limits that have to watch the response in order to know its
// status.
func (b *testbed) eachWriter(n int64, run func(*testbed, Limit)) {
	b.Helper()
	for name, options := range map[string][]guard.Option{
		"Plain":     nil,
		"CountIf":   {guard.CountIf(func(int) bool { return true })},
		"CostAfter": {guard.CostAfter()},
	} {
		b.each(name, func(b *testbed) {
			limit := b.fixed(n)
			limit.Options = options
			run(b, limit)
		})
	}
}

// upgrade asks for another protocol. If the status is 101, it sends one line in that protocol.
func (s *servedApp) upgrade(path string, status int) {
	s.Helper()
	conn, err := new(net.Dialer).DialContext(s.Context(), "tcp", strings.TrimPrefix(s.server.URL, "http://"))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(testTimeout)) // cannot fail on a new connection
	_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		s.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != status {
		s.Errorf("got status %d, want %d", resp.StatusCode, status)
	}
	if status == http.StatusSwitchingProtocols {
		_, _ = io.WriteString(conn, "ping\n")
		if echo, err := reader.ReadString('\n'); echo != "ping\n" {
			s.Errorf("the echo over the connection is %q, %v; want %q", echo, err, "ping\n")
		}
	}
}

// stream reads the first half of a body before the handler writes the second half.
func stream(b *testbed) { b.streams("HTTP/1.1") }
func http2(b *testbed)  { b.streams("HTTP/2.0") }

func (b *testbed) streams(version string) {
	b.Helper()
	b.eachWriter(1, func(b *testbed, limit Limit) {
		gate := make(chan struct{})
		handler := Handler{Do: Stream, Gate: gate}
		s := b.serve(App{Use: []Mount{limit}, Routes: []Route{{Path: "/a", Handler: handler}}, HTTP2: version == "HTTP/2.0"})
		s.getInParts(gate)
		ans := s.get("/a")
		ans.wantDenied()
		ans.wantHeaders("1", "0", "1800000073", "60")
		if ans.proto != version {
			b.Errorf("the response came over %s, want %s", ans.proto, version)
		}
	})
}

// getInParts sends a request, and opens gate once it has read the first line of the response.
func (s *servedApp) getInParts(gate chan<- struct{}) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	defer cancel()
	req, err := s.request(ctx, http.MethodGet, "/a")
	if err != nil {
		s.Fatal(err)
	}
	resp, err := s.server.Transport.RoundTrip(req)
	if err != nil {
		close(gate)
		s.Fatal("the response did not begin before the handler returned: ", err)
	}
	body := bufio.NewReader(resp.Body)
	first, err := body.ReadString('\n')
	close(gate)
	rest, restErr := io.ReadAll(body)
	if first != "one\n" || string(rest) != "two\n" || resp.StatusCode != http.StatusOK || resp.Header.Get("X-Ratelimit-Limit") != "1" {
		s.Errorf("got status %d, header %v, body %q, %v, then %q, %v; want 200, the headers of the limit, and the lines one and two", resp.StatusCode, resp.Header, first, err, rest, restErr)
	}
	_ = resp.Body.Close()
}

// uploads checks that the server removes the temporary files of an upload, even if the handler parsed a copy of the
// server's request, and even if the handler panics and an outer middleware recovers.
func uploads(b *testbed) {
	b.eachWriter(9, uploadsBehind)
	b.each("InFlight", func(b *testbed) { uploadsBehind(b, b.slots(9)) }) // InFlight gives the request a new context
}

func uploadsBehind(b *testbed, limit Limit) {
	temp := b.TempDir()
	b.Setenv("TMPDIR", temp)
	files := func() int {
		entries, err := os.ReadDir(temp)
		if err != nil {
			b.Fatal(err)
		}
		return len(entries)
	}
	parsed := 0
	s := b.behind(limit,
		Route{Path: "/a", Handler: Handler{Do: Upload, Uploaded: func() { parsed += files() }}},
		Route{Path: "/panics", Handler: Handler{Do: Upload, Uploaded: func() { parsed += files(); panic("uploaded") }}},
	)
	s.upload("/a").wantStatus(http.StatusOK)
	s.upload("/panics").wantStatus(http.StatusInternalServerError)
	s.close()
	if want := 2; parsed != want && b.adapter.Lacks[ResponseWriter] == "" { // fasthttp keeps small forms in memory
		b.Errorf("the uploads were in %d temporary files, want %d", parsed, want)
	}
	if n := files(); n != 0 {
		b.Errorf("%d temporary files are left, want 0", n)
	}
}

// upload sends a form with a file.
func (s *servedApp) upload(path string) answer {
	s.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "large")
	if err != nil {
		s.Fatal(err)
	}
	_, _ = file.Write(make([]byte, 1<<20))
	_ = form.Close()
	ctx, cancel := context.WithTimeout(s.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server.URL+path, &body)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	ans, err := s.roundTrip(req)
	if err != nil {
		s.Fatal(err)
	}
	return ans
}
