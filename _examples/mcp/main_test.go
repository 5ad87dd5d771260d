package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	if strconv.IntSize == 32 {
		fmt.Println("skipped: miniredis cuts times to 32 bits")
		return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // outages are intended
	os.Exit(m.Run())
}

// A service is the app, with a Redis whose clock stands still.
type service struct {
	*testing.T

	redis   *miniredis.Miniredis
	url     string
	session string // the session's id, if the server has sessions
	mu      sync.Mutex
	ran     map[string]int // how often each tool ran
	id      atomic.Int64
}

// modes are the ways in which the SDK can serve. The app is stateless, and answers with JSON.
var modes = map[string]*mcp.StreamableHTTPOptions{
	"stateless": {Stateless: true, JSONResponse: true},
	"sessions":  {},
	"events":    {Stateless: true},
}

func serveApp(t *testing.T, options *mcp.StreamableHTTPOptions) *service {
	t.Helper()
	s := &service{T: t, redis: miniredis.RunT(t), ran: map[string]int{}}
	s.redis.SetTime(time.Unix(1_800_000_000, 0))
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = rdb.Close() })
	server := httptest.NewServer(limited(rdb, newServer(func(tool string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ran[tool]++
	}), options))
	t.Cleanup(server.Close)
	s.url = server.URL + "/mcp"
	if !options.Stateless {
		header, _ := s.post(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},`+
			`"clientInfo":{"name":"test","version":"1"}}}`, "demo-key-1")
		if s.session = header.Get("Mcp-Session-Id"); s.session == "" {
			t.Fatal("initialize returned no session")
		}
		s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "demo-key-1")
	}
	return s
}

// post sends a body, with headers given as lines such as "Name: value". It returns the status and the body of the answer in one text.
func (s *service) post(body, token string, lines ...string) (header http.Header, answer string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if s.session != "" {
		r.Header.Set("Mcp-Session-Id", s.session)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	_ = response.Body.Close()
	return response.Header, fmt.Sprint(response.StatusCode, " ", string(text))
}

// call returns the body of a plain call of a tool.
func (s *service) call(tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, s.id.Add(1), tool)
}

// runs returns how often a tool ran.
func (s *service) runs(tool string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[tool]
}

// TestBodies sends bodies that other parsers read in other ways, many times, while 2 exports per minute are allowed. Each body must be refused, or
// counted as a call of the tool that the server runs.
func TestBodies(t *testing.T) {
	blanks := strings.Repeat(" ", 1<<20)
	named := func(name string) string {
		return `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":` + name + `}`
	}
	for name, c := range map[string]struct {
		body string   // %d stands for the id, which is different each time
		ran  int      // how many exports run
		more []string // more headers
	}{
		"plain":                    {named(`{"name":"export","arguments":{}}`), 2, nil},
		"a word behind":            {named(`{"name":"export","arguments":{}}`) + " x", 2, nil},
		"a dot behind":             {named(`{"name":"export","arguments":{}}`) + " .", 2, nil},
		"a call behind":            {named(`{"name":"export","arguments":{}}`) + ` {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"other"}}`, 2, nil},
		"1 MiB of blanks behind":   {named(`{"name":"export","arguments":{}}`) + blanks, 2, nil},
		"1 MiB of blanks before":   {blanks + named(`{"name":"export","arguments":{}}`), 2, nil},
		"1 MiB of blanks inside":   {named(`{"name":` + blanks + `"export","arguments":{}}`), 2, nil},
		"the name, and null":       {named(`{"name":"export","name":null,"arguments":{}}`), 2, nil},
		"null, and the name":       {named(`{"name":null,"name":"export","arguments":{}}`), 2, nil},
		"another name first":       {named(`{"name":"other","name":"export","arguments":{}}`), 2, nil},
		"another name last":        {named(`{"name":"export","name":"other","arguments":{}}`), 0, nil},
		"another case":             {named(`{"NAME":"export","arguments":{}}`), 0, nil},
		"another case last":        {named(`{"name":"other","NAME":"export","arguments":{}}`), 0, nil},
		"another case first":       {named(`{"NAME":"other","name":"export","arguments":{}}`), 2, nil},
		"an escaped name":          {named(`{"n\u0061me":"\u0065xport","arguments":{}}`), 2, nil},
		"a folded letter":          {named(`{"na\u006de":"export","arguments":{}}`), 2, nil},
		"parameters, another case": {`{"jsonrpc":"2.0","id":%d,"method":"tools/call","PARAMS":{"name":"export","arguments":{}}}`, 0, nil},
		"parameters twice":         {`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"export"},"params":{"arguments":{}}}`, 0, nil},
		"parameters twice, named":  {`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"other"},"params":{"name":"export","arguments":{}}}`, 2, nil},
		"the method twice":         {`{"jsonrpc":"2.0","id":%d,"method":"ping","method":"tools/call","params":{"name":"export","arguments":{}}}`, 2, nil},
		"no id":                    {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"export","arguments":{}}}`, 0, nil},
		"no parameters":            {`{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`, 0, nil},
		"null parameters":          {named(`null`), 0, nil},
		"parameters in a list":     {named(`[{"name":"export"}]`), 0, nil},
		"a name that is no text":   {named(`{"name":["export"]}`), 0, nil},
		"blanks in the name":       {named(`{"name":" export ","arguments":{}}`), 0, nil},
		"a name in capitals":       {named(`{"name":"EXPORT","arguments":{}}`), 0, nil},
		"a batch of one":           {`[` + named(`{"name":"export","arguments":{}}`) + `]`, 2, []string{"Mcp-Protocol-Version: 2025-03-26"}},
		"a batch with others": {`[{"jsonrpc":"2.0","id":"a%[1]d","method":"tools/call","params":{"name":"other","arguments":{}}},` +
			`{"jsonrpc":"2.0","id":"b%[1]d","method":"tools/call","params":{"name":"export","arguments":{}}},` +
			`{"jsonrpc":"2.0","id":"c%[1]d","method":"tools/call","params":{"name":"export","arguments":{}}}]`, 2, []string{"Mcp-Protocol-Version: 2025-03-26"}},
		"a batch of a later version": {`[` + named(`{"name":"export","arguments":{}}`) + `]`, 0, []string{"Mcp-Protocol-Version: 2025-06-18"}},
		"another name in a header":   {named(`{"name":"export","arguments":{}}`), 2, []string{"Mcp-Name: other", "Mcp-Method: ping"}},
		"the newest version": {named(`{"name":"export","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`), 2,
			[]string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: export"}},
	} {
		for mode, options := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				s := serveApp(t, options)
				var last string
				times := 50
				if len(c.body) > 1<<20 {
					times = 10 // large bodies take long
				}
				for range times {
					body := c.body
					if strings.Contains(body, "%") {
						body = fmt.Sprintf(body, s.id.Add(1))
					}
					_, last = s.post(body, "demo-key-1", c.more...)
				}
				want := c.ran
				if name == "the newest version" && !options.Stateless {
					want = 0 // the SDK supports this version only in stateless servers
				}
				if n := s.runs("export"); n != want {
					t.Errorf("%d exports ran, want %d; the last answer is %s", n, want, last)
				}
			})
		}
	}
}

// TestTools calls tools until the calls are denied, and checks that the result says when to try again.
func TestTools(t *testing.T) {
	for mode, options := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := serveApp(t, options)
			for range 70 {
				s.post(s.call("search"), "demo-key-1")
			}
			if n := s.runs("search"); n != 60 {
				t.Errorf("%d searches ran, want 60", n)
			}
			s.post(s.call("export"), "demo-key-1")
			s.post(s.call("export"), "demo-key-1")
			_, answer := s.post(s.call("export"), "demo-key-1")
			if !strings.HasPrefix(answer, "200 ") || !strings.Contains(answer, `"isError":true`) || !strings.Contains(answer, "too many calls of export: try again in 30 s") {
				t.Errorf("a denied call: got the answer %s, want a result with isError that says when to try again", answer)
			}
			if n := s.runs("export"); n != 2 {
				t.Errorf("%d exports ran, want 2", n)
			}
		})
	}
}

// TestOthers sends requests that have no limit of their own, such as calls of unknown tools: they must share a limit of 300.
func TestOthers(t *testing.T) {
	s := serveApp(t, modes["stateless"])
	for i := range 310 {
		body := s.call(fmt.Sprint("invented-", i))
		if i%2 == 0 {
			body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, s.id.Add(1))
		}
		_, answer := s.post(body, "demo-key-1")
		if tooMany := strings.Contains(answer, "too many"); tooMany != (i >= 300) {
			t.Fatalf("request %d: got the answer %s, want a denial only after 300", i+1, answer)
		}
	}
	_, answer := s.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "demo-key-1")
	if !strings.Contains(answer, `"code":-32000`) || !strings.Contains(answer, `"data":{"retryAfter":1}`) {
		t.Errorf("got the answer %s, want the code -32000 and retryAfter 1", answer)
	}
	if _, answer := s.post(s.call("other"), "demo-key-2"); !strings.Contains(answer, "other is done") {
		t.Errorf("another user: got the answer %s, want the tool to run", answer)
	}
}

// TestUnknown sends requests with a wrong token: the limit by address must count them.
func TestUnknown(t *testing.T) {
	s := serveApp(t, modes["stateless"])
	for range 600 {
		if _, answer := s.post(s.call("export"), "guess"); !strings.HasPrefix(answer, "401 ") {
			t.Fatalf("got the answer %s, want 401", answer)
		}
	}
	header, answer := s.post(s.call("export"), "demo-key-1")
	if !strings.HasPrefix(answer, "429 ") || header.Get("Retry-After") == "" {
		t.Errorf("after 600 requests: got the answer %s, want 429 with Retry-After", answer)
	}
	if n := s.runs("export"); n != 0 {
		t.Errorf("%d exports ran, want none", n)
	}
}

// TestOutage makes Redis fail: exports must fail, and searches must be limited in this process.
func TestOutage(t *testing.T) {
	s := serveApp(t, modes["stateless"])
	s.redis.SetError("LOADING")
	for range 5 {
		if _, answer := s.post(s.call("export"), "demo-key-1"); !strings.Contains(answer, "the rate limiter is unavailable") {
			t.Errorf("export: got the answer %s, want an error of the rate limiter", answer)
		}
		if _, answer := s.post(s.call("search"), "demo-key-1"); !strings.Contains(answer, "search is done") {
			t.Errorf("search: got the answer %s, want the tool to run", answer)
		}
	}
	if n := s.runs("export"); n != 0 {
		t.Errorf("%d exports ran, want none", n)
	}
}

// TestSDKClient connects the SDK's own client in memory, where requests have no token: the server must not serve them without a limit.
func TestSDKClient(t *testing.T) {
	server := newServer(func(string) { t.Error("a tool ran") })
	server.AddReceivingMiddleware(limitTools(nil, nil))
	clientSide, serverSide := mcp.NewInMemoryTransports()
	session, err := server.Connect(t.Context(), serverSide, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), clientSide, nil); err == nil {
		_ = client.Close()
		t.Error("a client without a user could connect, want an error")
	}
}
