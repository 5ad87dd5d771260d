package main

import (
	"compress/gzip"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/limittest"
)

var update = flag.Bool("update", false, "write testdata/golden.txt")

// replayed returns the output of the program for an input.
func replayed(t *testing.T, input string, args ...string) string {
	t.Helper()
	var out strings.Builder
	if err := run(args, strings.NewReader(input), &out, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// generated returns a log of n lines.
func generated(t *testing.T, n int) string {
	t.Helper()
	return replayed(t, "", "-generate", fmt.Sprint(n))
}

// TestGolden compares the output for a generated log with a file. If the output is meant to change, write the file anew:
// go test ./_examples/replay -update.
func TestGolden(t *testing.T) {
	got := replayed(t, generated(t, 20_000),
		"-limit", "token_bucket 100/1m", "-limit", "fixed_window 1000/1h aligned", "-limit", "leaky_bucket 100/1m burst=10", "-top", "4")
	golden := filepath.Join("testdata", "golden.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("error %v; got\n%s\nwant\n%s", err, got, want)
	}
}

// TestRecipe follows docs/recipes.md with a log of a million lines. The output for a limit of 100 per minute must be in the document. A limit
// of 60 per minute must deny four clients, none of which is a person.
func TestRecipe(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	requests := generated(t, 1_000_000)
	if got := replayed(t, requests, "-limit", "token_bucket 100/1m"); !strings.Contains(string(document), got) {
		t.Errorf("docs/recipes.md does not contain the output\n%s", got)
	}
	got := replayed(t, requests, "-limit", "token_bucket 60/1m", "-top", "9")
	_, got, _ = strings.Cut(got, "\nDenied most")
	got, _, _ = strings.Cut(got, "\n\n")
	if clients := strings.Count(got, "\n") - 1; clients != 4 || strings.Contains(got, "\n10.") {
		t.Errorf("with 60 per minute, got\nDenied most%s\nwant four clients, none of them a person", got)
	}
}

// TestFormats writes the same requests in each format, and checks that the output is the same for each.
func TestFormats(t *testing.T) {
	t.Parallel()
	combined := generated(t, 2000)
	want := replayed(t, combined)
	var object, csv, semicolons strings.Builder
	csv.WriteString("Time,ip,agent\n")
	semicolons.WriteString("\ufeffid;when;who\n")
	for line := range strings.Lines(combined) {
		ip, at := combinedLine(t, line)
		fmt.Fprintf(&object, "{\"request\": {\"remote_ip\": %q, \"n\": 1}, \"ts\": %d.0, \"x\": null}\n", ip, at.Unix())
		fmt.Fprintf(&csv, "%s,\"%s\",\"a \"\"quoted\"\", one\"\r\n", at.Format(time.RFC3339), ip)
		fmt.Fprintf(&semicolons, "7; %d ;%s\n", at.UnixNano(), ip)
	}
	for name, c := range map[string]struct {
		input string
		args  []string
		field string // the field of the key
	}{
		"gzip":           {zip(combined), nil, "remote_addr"},
		"gzip, in parts": {zip(combined[:99]) + zip(combined[99:]), []string{"-format", "nginx", "-key", "remote_addr"}, "remote_addr"},
		"JSON":           {object.String(), nil, "request.remote_ip"},
		"JSON, by names": {object.String(), []string{"-key", "request.remote_ip", "-time", "ts", "-cost", "request.n"}, "request.remote_ip"},
		"CSV":            {csv.String(), nil, "ip"},
		"CSV, by number": {semicolons.String(), []string{"-key", "3", "-time", "2"}, "3"},
		"CSV, by names":  {semicolons.String(), []string{"-key", "who", "-time", "WHEN"}, "who"},
	} {
		got := replayed(t, c.input, c.args...)
		want := strings.Replace(want, " by remote_addr in ", " by "+c.field+" in ", 1)
		if withoutLines(got) != withoutLines(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// combinedLine parses a line without the code of the program.
func combinedLine(t *testing.T, line string) (ip string, at time.Time) {
	t.Helper()
	var day, zone string
	if n, err := fmt.Sscanf(line, "%s - - [%s %5s]", &ip, &day, &zone); n != 3 {
		t.Fatalf("the line %q has %d of 3 fields: %v", line, n, err)
	}
	at, err := time.Parse(layouts[0], day+" "+zone)
	if err != nil {
		t.Fatal(err)
	}
	return ip, at
}

// withoutLines removes the second line, which counts the lines of the log: CSV has one more for the names.
func withoutLines(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	_, rest, _ = strings.Cut(rest, "\n")
	return first + rest
}

// TestLeftOut checks lines that cannot be read: each must be counted, with the reason, and none may end the program.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	const good = `192.0.2.1 - bob [16/Nov/2026:10:00:00 +0100] "GET /a?b HTTP/1.1" 200 5 "-" "a \"b\""` + "\n"
	long := strings.Repeat("x", 3*maxLine) + "\n"
	for name, c := range map[string]struct{ input, want string }{
		"long":       {good + long + good + strings.Repeat("y", maxLine), "4 lines read; 2 are longer than 65536 bytes, the first is line 2\n"},
		"foreign":    {good + "\x00\xff\n\n" + good + "Nov 16 sshd[7]: hello", "5 lines read; 2 are not of the combined format, the first is line 2\n"},
		"time":       {good + strings.Replace(good, "Nov", "Foo", 1), "; 1 is with a time that cannot be read (-time says which field it is), the first is line 2\n"},
		"old":        {good + strings.Replace(good, "2026", "1926", 1), "; 1 is with a time that cannot be read"},
		"no key":     {good + strings.Replace(good, "192.0.2.1", "-", 1), "; 1 is without a key (-key says which field it is)"},
		"cut gzip":   {zip(generated(t, 2000))[:9000], "; the standard input ends early: unexpected EOF\n"},
		"JSON":       {`{"ts": 1763280000, "ip": "a"}` + "\n" + `{"ts": 1763280000, "ip": {"a": 1}}` + "\n[]\n" + `{"ts": null}`, "; 1 is without a key"},
		"JSON, time": {`{"ts": 1763280000, "ip": "a"}` + "\n" + `{"ts": {}, "ip": "a"}` + "\n" + `{"ts": "1e30", "ip": "a"}`, "; 1 is without a time"},
		"CSV":        {"ts,ip\n1763280000,a\n1763280000,\"a\n1763280000\n", "; 1 is not CSV, the first is line 3; 1 is without a key"},
	} {
		if got := replayed(t, c.input); !strings.Contains(got, c.want) {
			t.Errorf("%s: got\n%s\nwant %q in it", name, got, c.want)
		}
	}
	costs := replayed(t, good+strings.Replace(good, " 5 ", " 0 ", 1)+strings.Replace(good, " 5 ", " - ", 1)+strings.Replace(good, " 5 ", " -7 ", 1),
		"-cost", "body_bytes_sent", "-limit", "token_bucket 7/1d")
	if want := "; 2 are with a cost of 0, which is free, the first is line 2; 1 is without a cost in \"body_bytes_sent\""; !strings.Contains(costs, want) {
		t.Errorf("costs: got\n%s\nwant %q in it", costs, want)
	}
	if !strings.Contains(costs, "5 of 7\n") {
		t.Errorf("a request with a cost of 5: got\n%s\nwant a peak use of 5 of 7", costs)
	}
}

// zip returns text compressed by gzip.
func zip(text string) string {
	var b strings.Builder
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

// TestOutOfOrder reverses a log: the requests must be sorted, and the output be the same, with a note.
func TestOutOfOrder(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("{\"ts\": %d, \"ip\": \"a\"}\n", 1763280000+i))
	}
	want := replayed(t, strings.Join(lines, ""), "-limit", "fixed_window 7/1m")
	slices.Reverse(lines)
	got := replayed(t, strings.Join(lines, ""), "-limit", "fixed_window 7/1m")
	const note = "99 requests were out of order, by 1m39s at most; they are sorted\n"
	if !strings.Contains(got, note) || strings.Replace(got, note, "", 1) != want {
		t.Errorf("got\n%s\nwant, with a note,\n%s", got, want)
	}
}

// TestMistakes checks that the error for wrong flags or files says what is wrong.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"a log does not say how long requests took": {"-limit", "in_flight 10", filepath.Join("testdata", "three.log")},
		"-deny 0: want":            {"-deny", "0"},
		`-format "xml": want`:      {"-format", "xml"},
		"allowed are fixed_window": {"-limit", "bucket 7"},
		"no such file":             {"nowhere.log"},
		"there is no request: 0 ":  {},
		`3 are without a key in "ip", the first is line 1`: {"-key", "ip", filepath.Join("testdata", "three.log")},
	} {
		err := run(args, strings.NewReader(""), io.Discard, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one that contains %q", args, err, want)
		}
	}
}

// TestKeys counts by other fields than the address, by addresses that are written in several ways, and by keys that would be harmful on a
// terminal.
func TestKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"remote_addr":                 "3 requests of 2 keys",
		"http_user_agent":             "3 requests of 1 key ",
		"remote_user":                 "1 request of 1 key ",
		"path":                        "3 requests of 2 keys",
		"remote_addr,http_user_agent": "3 requests of 2 keys",
	} {
		if got := replayed(t, "", "-key", key, filepath.Join("testdata", "three.log")); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, want a text that begins with %q", key, got, want)
		}
	}
	var addresses strings.Builder
	for _, ip := range []string{"192.0.2.1:99", "192.0.2.1", "::ffff:192.0.2.1", "[2001:db8::1]:99", "2001:db8::ffff:2"} {
		fmt.Fprintf(&addresses, "{\"ts\": 1763280000, \"ip\": %q}\n", ip)
	}
	if got := replayed(t, addresses.String(), "-limit", "fixed_window 1/1h"); !strings.HasPrefix(got, "5 requests of 2 keys") || !strings.Contains(got, "2001:db8::/64 ") {
		t.Errorf("addresses of one client and one network: got\n%s\nwant two keys", got)
	}
	hostile := replayed(t, strings.Repeat(`{"ts": 1763280000, "ip": "\u001b[2J<script>"}`+"\n", 3), "-limit", "fixed_window 1/1h")
	if strings.Contains(hostile, "\x1b") || !strings.Contains(hostile, `"\x1b[2J<script>"`) {
		t.Errorf("got\n%q\nwant the key quoted, so that a terminal does not obey it", hostile)
	}
}

// TestSmallest searches limits whose smallest counts are known: key i comes i+1 times at one instant, and another key 500 times.
func TestSmallest(t *testing.T) {
	t.Parallel()
	tr := newTraffic()
	at := time.Unix(1763280000, 0)
	for i := range 100 {
		for range i + 1 {
			tr.add(at, fmt.Appendf(nil, "key %d", i), 1)
		}
	}
	for range 500 {
		tr.add(at, []byte("heavy"), 1)
	}
	for text, want := range map[string][3]string{ // the smallest limits that deny nothing, fewer than 10 % of 5,550 requests (552 are denied), and fewer than 10 % of 101 keys
		"token_bucket 7/1m":                  {"token_bucket 500/1m", "token_bucket 84/1m", "token_bucket 91/1m"},
		"token_bucket 7/1m burst=14":         {"token_bucket 250/1m burst=500", "token_bucket 42/1m burst=84", "token_bucket 46/1m burst=92"},
		"fixed_window 1/1h aligned":          {"fixed_window 500/1h aligned", "fixed_window 84/1h aligned", "fixed_window 91/1h aligned"},
		"sliding_window_log 100/1s":          {"sliding_window_log 500/1s", "sliding_window_log 84/1s", "sliding_window_log 91/1s"},
		"gcra 100000000/1s name=x":           {"gcra 500/1s name=x", "gcra 84/1s name=x", "gcra 91/1s name=x"},
		"sliding_window_counter 900/1d":      {"sliding_window_counter 500/1d", "sliding_window_counter 84/1d", "sliding_window_counter 91/1d"},
		"leaky_bucket 60/1m burst=60":        {"leaky_bucket 500/1m burst=500", "leaky_bucket 84/1m burst=84", "leaky_bucket 91/1m burst=91"},
		"fixed_window 3/month in=Asia/Tokyo": {"fixed_window 500/month in=Asia/Tokyo", "fixed_window 84/month in=Asia/Tokyo", "fixed_window 91/month in=Asia/Tokyo"},
	} {
		like, err := core.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		s := newSearch(tr, like, nil)
		for i, enough := range []func(outcome) bool{
			func(o outcome) bool { return o.denied == 0 },
			func(o outcome) bool { return float64(o.denied) < 0.1*5550 },
			func(o outcome) bool { return float64(o.keys) < 0.1*101 },
		} {
			f, err := s.smallest(enough)
			if err != nil || !f.ok || f.limit.String() != want[i] {
				t.Errorf("%s: got the limit %v, found %t, error %v; want %s", text, f.limit, f.ok, err, want[i])
			}
		}
	}
}

// TestSmallestNone searches a limit that would need a larger count than the algorithm accepts.
func TestSmallestNone(t *testing.T) {
	t.Parallel()
	got := replayed(t, `{"ts": 1763280000, "ip": "a", "n": 2000000000}`, "-cost", "n", "-limit", "sliding_window_log 100/1s", "-limit", "gcra 1/1s")
	if !strings.Contains(got, "none: sliding_window_log 100000/1s is too small") || !strings.Contains(got, "none: gcra 1000000000/1s is too small") {
		t.Errorf("got\n%s\nwant no smallest limit", got)
	}
}

// TestMonotone tries every count on random logs, because the search by halving depends on this: a larger limit never denies more keys, and with
// costs of 1 never more requests. With other costs, a larger limit may deny more requests.
func TestMonotone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"token_bucket 1/10s", "token_bucket 2/10s burst=3", "fixed_window 1/10s", "fixed_window 1/10s aligned", "sliding_window_log 1/10s",
		"sliding_window_counter 1/10s", "leaky_bucket 1/10s", "gcra 3/10s burst=2",
	} {
		like, _ := core.ParseLimit(text)
		for seed := range uint64(15) {
			for _, cost := range []int64{1, 9} {
				tr := randomTraffic(rand.New(rand.NewPCG(seed, uint64(cost))), cost)
				byKeys := checkAll(t, tr, like, cost)
				f, err := newSearch(tr, like, nil).smallest(func(o outcome) bool { return o.keys < 2 })
				if err != nil || f.limit.Rate().Count() != byKeys {
					t.Errorf("%s, seed %d: got the limit %v, %v; want a count of %d", text, seed, f.limit, err, byKeys)
				}
			}
		}
	}
}

// randomTraffic returns 150 requests of four keys, with costs from 1 to cost.
func randomTraffic(r *rand.Rand, cost int64) *traffic {
	tr := newTraffic()
	at := time.Unix(1763280000, 0)
	for range 150 {
		at = at.Add(time.Duration(r.IntN(2500)) * time.Millisecond)
		tr.add(at, fmt.Appendf(nil, "key %d", r.IntN(4)), 1+r.Int64N(cost))
	}
	return tr
}

// checkAll tries the counts from 1 on until nothing is denied, and returns the first one with which fewer than two keys are denied.
func checkAll(t *testing.T, tr *traffic, like core.Limit, cost int64) (first int64) {
	t.Helper()
	before := outcome{denied: 1 << 40, keys: math.MaxInt}
	for n := int64(1); ; n++ {
		limit, err := withCount(like, n)
		if err != nil {
			t.Fatal(err)
		}
		reports, err := limittest.Replay(tr.arrivals(tr.requests, func(int) {}), limit)
		if err != nil {
			t.Fatal(err)
		}
		o := outcome{denied: reports[0].Denied, keys: keysDenied(reports[0])}
		if o.keys > before.keys || cost == 1 && o.denied > before.denied {
			t.Errorf("%v denies %d requests of %d keys, want at most %d of %d, as the next smaller limit", limit, o.denied, o.keys, before.denied, before.keys)
		}
		if first == 0 && o.keys < 2 {
			first = n
		}
		if before = o; o.denied == 0 {
			return first
		}
	}
}

// TestPage writes the page, and checks that keys are escaped in it.
func TestPage(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "replay.html")
	input := generated(t, 5000) + strings.Repeat(strings.Replace(generated(t, 1), "10.0.0.0", "<script>", 1), 300)
	replayed(t, input, "-o", name, "-limit", "token_bucket 100/1m", "-limit", "sliding_window_log 9/1h")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got := html.UnescapeString(string(text))
	for _, want := range []string{
		"<h2>token_bucket 100/1m</h2>", "<h2>sliding_window_log 9/1h</h2>", "in any minute", "in any hour", "default-src 'none'", "101–128 ▲", "--served",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if strings.Contains(string(text), "<script") || strings.Contains(string(text), "ZgotmplZ") {
		t.Error("the page contains a key that is not escaped, or a value that the template refused")
	}
}

// TestBusiest uses a key whose busiest period does not begin at a multiple of the period.
func TestBusiest(t *testing.T) {
	t.Parallel()
	tr := newTraffic()
	for _, seconds := range []int64{0, 50, 59, 60, 70, 109, 110, 300} {
		tr.add(time.Unix(1763280000+seconds, 0), []byte("a"), 2)
	}
	tr.add(time.Unix(1763280301, 0), []byte("b"), 3)
	if got := tr.busiest(time.Minute); got[0] != 10 || got[1] != 3 {
		t.Errorf("got %v, want 10 and 3", got)
	}
}

// TestProgress checks that a bar is drawn on a terminal, and not in a file.
func TestProgress(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &progress{out: &out}
	p.say("reading", 0.5)
	p.say("reading", 0.6) // too soon to be drawn
	p.end()
	if want := "\r\x1b[Kreading [##########..........] 50 %\r\x1b[K"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if newProgress(f) != nil {
		t.Error("newProgress returned a bar for a file, want nil")
	}
}

// FuzzLine reads any line in any format: nothing may panic, and every request that is read must be an arrival that Replay accepts.
func FuzzLine(f *testing.F) {
	for _, line := range []string{
		`192.0.2.1 - - [16/Nov/2026:10:00:00 +0100] "GET / HTTP/1.1" 200 5 "-" "a"`,
		`192.0.2.1 - - [16/Nov/2026:10:00:00 +0100] "\`, "{\"ts\": 1e300, \"ip\": \"a\"}", `{"ts":-1,"ip":{}}`, `{"ts": 1763280000123456789, "ip": true}`,
		`"a","b`, "1763280000;x;\"y\"", "2026-11-16T10:00:00Z,a,7", `{"time":"9999-01-01 00:00:00","user":"\ud800"}`, "\ufeff{}", "\t\t", `""`,
	} {
		f.Add(line, "")
		f.Add(line, "7")
	}
	f.Fuzz(func(t *testing.T, line, more string) {
		for name := range formats {
			for _, s := range []source{{format: name}, {format: name, key: "2,a.b", time: "1", cost: "3"}, {format: name, key: "1", time: "1"}} {
				tr := newTraffic()
				if err := s.readOne("fuzz", strings.NewReader(line+"\n"+more+"\n"+line), tr); err != nil {
					continue // the text begins like a gzip file, but is not one
				}
				tr.sort()
				if _, err := limittest.Replay(tr.arrivals(tr.requests, func(int) {}), core.GCRA(core.PerMinute(1))); err != nil {
					t.Errorf("%s: the lines %q and %q: Replay returned the error %v", name, line, more, err)
				}
				for _, skipped := range tr.skipped {
					if skipped.lines < 1 || skipped.first < 1 || skipped.first > tr.lines {
						t.Errorf("%s: the line %q: got the skipped lines %+v of %d lines", name, line, skipped, tr.lines)
					}
				}
			}
		}
	})
}
