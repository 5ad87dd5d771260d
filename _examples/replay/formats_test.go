package main

import (
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// read reads a log as the program does, and returns its requests as "time key", its traffic, or the error.
func read(t *testing.T, log string, s source) ([]string, *traffic, error) {
	t.Helper()
	tr, err := s.read(nil, strings.NewReader(log), nil)
	if err != nil {
		return nil, nil, err
	}
	var requests []string
	for _, r := range tr.requests {
		requests = append(requests, time.UnixMicro(r.at).UTC().Format("2006-01-02T15:04:05.999999")+" "+tr.keys[r.key])
	}
	return requests, tr, nil
}

// TestRealFormats reads lines in formats that real programs write, with the default fields.
func TestRealFormats(t *testing.T) {
	t.Parallel()
	const (
		request = `"GET /a?b HTTP/1.1" 200 5 "-" "curl/8"`
		line    = "192.0.2.1 - - [16/Nov/2026:10:00:00 +0100] " + request
		other   = "2001:db8:1:2:3::4 - bob [16/Nov/2026:10:00:01 +0100] " + request
	)
	want := []string{"2026-11-16T09:00:00 192.0.2.1", "2026-11-16T09:00:01 2001:db8:1:2::/64"}
	for name, c := range map[string]struct {
		log  string
		from source
		want []string // nil: the requests above
	}{
		"combined":                {log: line + "\n" + other},
		"Apache's vhost_combined": {log: "shop.example:443 " + line + "\nshop.example:443 " + other},
		"nginx with its host":     {log: "shop.example " + line + "\n[::1] " + other},
		"syslog": {log: "Nov 16 10:00:00 web1 nginx: " + line + "\n" +
			"<190>Nov 16 10:00:01 web1 nginx[77]: " + other},
		"docker compose logs": {log: "nginx-1  | " + line + "\nnginx-1  | " + other},
		"kubectl --prefix":    {log: "[pod/web-7d/nginx] " + line + "\n[pod/web-7d/nginx] " + other},
		"Kubernetes CRI": {log: "2026-11-16T09:00:00.123456789Z stdout F " + line + "\n" +
			"2026-11-16T09:00:01.123456789Z stdout F " + other},
		"X-Forwarded-For first": {log: "10.0.0.2, 10.0.0.1, " + line + "\n10.0.0.2, " + other},
		"a user with blanks": {log: strings.Replace(line, "- - [", "- John Smith [", 1) + "\n" +
			strings.Replace(other, "bob", "a - b 7", 1)},
		"a user who writes a time": {log: strings.Replace(line, "- - [", "- x [01/Jan/2020:00:00:00 +0000] [", 1) + "\n" + other},
		"the name of a user with blanks": {
			log:  strings.Replace(line, "- - [", "- John - Smith [", 1) + "\n" + other,
			from: source{key: "remote_user"},
			want: []string{"2026-11-16T09:00:00 John - Smith", "2026-11-16T09:00:01 bob"},
		},
		"names of hosts": {
			log:  strings.Replace(line, "192.0.2.1", "a.example", 1) + "\n" + strings.Replace(line, "192.0.2.1", "b.example", 1),
			want: []string{"2026-11-16T09:00:00 a.example", "2026-11-16T09:00:00 b.example"},
		},
		"nginx's main": {
			log:  line + ` "198.51.100.7, 203.0.113.9"` + "\n" + line + ` "203.0.113.8"` + "\n" + line + ` "-"`,
			from: source{key: "http_x_forwarded_for"},
			want: []string{"2026-11-16T09:00:00 203.0.113.9", "2026-11-16T09:00:00 203.0.113.8"},
		},
		"Docker's json-file": {log: `{"log":"` + strings.ReplaceAll(line, `"`, `\"`) + `\n","stream":"stdout","time":"2026-11-16T09:00:00.5Z"}` + "\n" +
			`{"log":"` + strings.ReplaceAll(other, `"`, `\"`) + `\n","stream":"stdout","time":"2026-11-16T09:00:01.5Z"}`},
		"Docker's json-file of JSON": {
			log:  `{"log":"{\"remote_ip\":\"192.0.2.1\"}\n","stream":"stdout","time":"2026-11-16T09:00:00.5Z"}`,
			want: []string{"2026-11-16T09:00:00.5 192.0.2.1"},
		},
		"IIS": {log: "#Software: Microsoft Internet Information Services 10.0\r\n#Version: 1.0\r\n" +
			"#Fields: date time s-ip cs-method cs-uri-stem c-ip cs(User-Agent) sc-status\r\n" +
			"2026-11-16 09:00:00 10.0.0.1 GET /a 192.0.2.1 curl/8+x 200\r\n" +
			"#Fields: time date c-ip\r\n09:00:01 2026-11-16 2001:db8:1:2:3::4\r\n"},
		"CloudFront": {log: "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method\n" +
			"2026-11-16\t09:00:00\tFRA2-C1\t7\t192.0.2.1\tGET\n2026-11-16\t09:00:01\tFRA2-C1\t7\t2001:db8:1:2:3::4\tGET\n"},
		"AWS, application": {log: `https 2026-11-16T09:00:00.000000Z app/web/50dc 192.0.2.1:2817 10.0.0.1:80 0.0 0.1 0.0 200 200 34 366 ` +
			`"GET https://a.example:443/ HTTP/2.0" "curl/8 x" ECDHE TLSv1.3 arn:x "Root=1"` + "\n" +
			`h2 2026-11-16T09:00:01.000000Z app/web/50dc [2001:db8:1:2:3::4]:2817 - -1 -1 -1 503 - 34 366 "GET https://a.example:443/ HTTP/2.0" "curl" - -`},
		"AWS, classic": {log: `2026-11-16T09:00:00.000000Z web 192.0.2.1:2817 10.0.0.1:80 0.0 0.1 0.0 200 200 0 29 "GET http://a.example:80/ HTTP/1.1"` + "\n" +
			`2026-11-16T09:00:01.000000Z web [2001:db8:1:2:3::4]:2817 - -1 -1 -1 503 0 0 29 "GET http://a.example:80/ HTTP/1.1" "curl" - -`},
		"Google": {log: `{"timestamp":"2026-11-16T09:00:00Z","httpRequest":{"remoteIp":"192.0.2.1","status":200}}` + "\n" +
			`{"timestamp":"2026-11-16T09:00:01Z","httpRequest":{"remoteIp":"2001:db8:1:2:3::4"}}`},
		"Cloudflare": {log: `{"ClientIP":"192.0.2.1","EdgeStartTimestamp":1794819600000000000}` + "\n" +
			`{"ClientIP":"2001:db8:1:2:3::4","EdgeStartTimestamp":"2026-11-16T09:00:01Z"}`},
		"Traefik": {
			log:  `{"ClientHost":"192.0.2.1","StartUTC":"2026-11-16T09:00:00.25Z","time":"2026-11-16T09:00:03Z"}`,
			want: []string{"2026-11-16T09:00:00.25 192.0.2.1"},
		},
		"BigQuery": {
			log:  `{"ip":"192.0.2.1","timestamp":"2026-11-16 09:00:00.123456 UTC"}`,
			want: []string{"2026-11-16T09:00:00.123456 192.0.2.1"},
		},
		"a duration named time": {log: `{"time":"0.012","timestamp":"2026-11-16T09:00:00Z","ip":"192.0.2.1"}` + "\n" +
			`{"time":"0.5","timestamp":"2026-11-16T09:00:01Z","ip":"2001:db8:1:2:3::4"}`},
		"CSV with a date and a time": {log: "date,time,ip\n2026-11-16,09:00:00,192.0.2.1\n2026-11-16,09:00:01,2001:db8:1:2:3::4"},
		"CSV after another line":     {log: "time,ip\n1,2\n2026-11-16T09:00:00Z,192.0.2.1\n2026-11-16T09:00:01Z,2001:db8:1:2:3::4"},
		"other lines in front":       {log: "starting\nlistening on :8080, ready\n" + line + "\n" + other},
		"an application's log": {log: `{"msg":"starting","user":"root","ts":1794819599}` + "\n" + `{"ts":1794819600,"remote_ip":"192.0.2.1"}` + "\n" +
			`{"msg":"login failed","user":"alice","ts":1794819600}` + "\n" + `{"ts":1794819601,"remote_ip":"2001:db8:1:2:3::4","user":"bob"}`},
	} {
		if c.want == nil {
			c.want = want
		}
		if got, _, err := read(t, c.log, c.from); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// TestRefused reads files whose format is unknown or that cannot be read: the error must say why, and show the first line.
func TestRefused(t *testing.T) {
	t.Parallel()
	var tar strings.Builder
	z := gzip.NewWriter(&tar)
	_, _ = fmt.Fprintf(z, "access.log%s0000644%sustar  %s", strings.Repeat("\x00", 90), strings.Repeat("\x00", 150), strings.Repeat("\x00", 300))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ log, want string }{
		"Envoy":   {`[2026-11-16T09:00:00.1Z] "GET / HTTP/1.1" 200 - 0 5 3 2 "-" "curl" "id" "host" "10.0.0.1:80"`, `its first line is "[2026-11-16T09`},
		"HAProxy": {`Nov 16 10:00:00 lb haproxy[14]: 192.0.2.1:33317 [16/Nov/2026:10:00:00.655] in be/s1 10/0/30/69/109 200 27 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`, "does not know this format"},
		"Gin":     {`[GIN] 2026/11/16 - 10:00:00 | 200 |  13.2µs |  192.0.2.1 | GET  "/"`, `its first line is "[GIN]`},
		"logfmt":  {`time=2026-11-16T09:00:00Z level=INFO msg=served ip=192.0.2.1`, `its first line is "time=2026`},
		"Heroku":  {`2026-11-16T09:00:00+00:00 heroku[router]: at=info method=GET path="/" fwd="192.0.2.1"`, `its first line is "2026`},
		"S3":      {`79a5 bucket [16/Nov/2026:09:00:00 +0000] 192.0.2.1 79a5 3E57 REST.GET.OBJECT a "GET /a HTTP/1.1" 200`, `its first line is "79a5`},
		"no names": {"2026-11-16T09:00:00Z,192.0.2.1\n2026-11-16T09:00:01Z,192.0.2.1",
			`it is taken for CSV, and no column of it has one of the usual names of a time that can be read (-time names it): its first line, which has the names, is "2026`},
		"whole numbers": {"date,time,ip\n20261116,100000,192.0.2.1", "a time that can be read (-time names it)"},
		"no client":     {"time,who\n2026-11-16T09:00:00Z,192.0.2.1", `a client (-key names it): its first line, which has the names, is "time,who"`},
		"zstd":          {"\x28\xb5\x2f\xfdx", `zstd -dc`},
		"xz":            {"\xfd7zXZ\x00x", `xz -dc`},
		"zip":           {"PK\x03\x04x", `unzip -p`},
		"UTF-16":        {"\xff\xfeG\x00E\x00", `iconv`},
		"tar":           {tar.String(), `tar -xOf`},
		"W3C, no time":  {"#Fields: c-ip\n192.0.2.1\n", `1 is without a time (-time says which field it is), the first is line 2, which has the fields ["c-ip"]`},
		"no address":    {`{"ts":1794819600,"who":"a"}`, `1 is without a key (-key says which field it is), the first is line 1, which has the fields ["ts" "who"]`},
		"an old time":   {`{"ts":"0.012","ip":"a"}`, "1 is with a time that cannot be read"},
	} {
		if got, _, err := read(t, c.log, source{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %q, %v; want an error that contains %q", name, got, err, c.want)
		}
	}
}

// TestStrangers checks that a warning is printed if most keys that should be addresses are not.
func TestStrangers(t *testing.T) {
	t.Parallel()
	const warning = `WARNING: 2 of 3 keys are no addresses, such as "b.example"`
	logged := func(names ...string) (log string) {
		for _, name := range names {
			log += name + ` - - [16/Nov/2026:10:00:00 +0100] "GET / HTTP/1.1" 200 5` + "\n"
		}
		return log
	}
	if got := replayed(t, logged("a.example", "2001:db8::1", "b.example")); !strings.Contains(got, warning) {
		t.Errorf("two of three keys are names: got no warning in\n%s", got)
	}
	if got := replayed(t, logged("192.0.2.1", "2001:db8::1", "b.example")); strings.Contains(got, "WARNING") {
		t.Errorf("one of three keys is a name: got a warning in\n%s", got)
	}
	if got := replayed(t, `{"ts":1794819600,"user":"a"}`); strings.Contains(got, "WARNING") {
		t.Errorf("the keys are users: got a warning in\n%s", got)
	}
}
