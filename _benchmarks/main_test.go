package main

import (
	"encoding/json"
	"encoding/xml"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
)

// needRedis skips the test if there is no redis-server, or fails it in CI.
func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("REDISLIMIT_REQUIRE_REDIS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("needs a redis-server in PATH: %v", err)
	}
}

// built builds the program, which needs a redis-server, and returns its path.
func built(t *testing.T) string {
	t.Helper()
	needRedis(t)
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// TestQuick runs the program with -quick. The output has a row for every everyday contender, the JSON file has
// all cells, and the chart is valid XML with a row for every charted contender.
func TestQuick(t *testing.T) {
	program := built(t)
	medians, chart := filepath.Join(t.TempDir(), "medians.json"), filepath.Join(t.TempDir(), "chart.svg")
	out, err := exec.CommandContext(t.Context(), program, "-quick", "-json", medians, "-svg", chart).CombinedOutput()
	if err != nil {
		t.Fatalf("got error %v from -quick, want none:\n%s", err, out)
	}
	for _, c := range contenders() {
		if c.everyday && !strings.Contains(string(out), "\n| "+c.name+" |") {
			t.Errorf("got no row for %q, want one, in:\n%s", c.name, out)
		}
	}
	var rep report
	text, err := os.ReadFile(medians)
	if err != nil || json.Unmarshal(text, &rep) != nil || len(rep.Cells) != 6 || !rep.Cells[5].Cluster {
		t.Errorf("-json: got error %v and %s, want 6 cells, the last on a Cluster", err, text)
	}
	text, err = os.ReadFile(chart)
	if err != nil || xml.Unmarshal(text, new(struct{})) != nil {
		t.Errorf("-svg: got error %v and %s, want valid XML", err, text)
	}
	if rows := strings.Count(string(text), `<text class="name `); rows != len(charted) {
		t.Errorf("-svg: got %d rows, want %d", rows, len(charted))
	}
}

// TestRedisCPU runs the program with -redis-cpu. The CPU time of Redis has to be known exactly where the kernel
// counts it, and decisions share round trips only in the second cell.
func TestRedisCPU(t *testing.T) {
	program, medians := built(t), filepath.Join(t.TempDir(), "medians.json")
	out, err := exec.CommandContext(t.Context(), program, "-redis-cpu", "-rounds", "1", "-slice", "50ms", "-json", medians).CombinedOutput()
	if err != nil {
		t.Fatalf("got error %v from -redis-cpu, want none:\n%s", err, out)
	}
	var rep report
	if text, err := os.ReadFile(medians); err != nil || json.Unmarshal(text, &rep) != nil || len(rep.Cells) != 2 {
		t.Fatalf("-json: got error %v and %s, want 2 cells", err, text)
	}
	own, _ := os.ReadFile("/proc/self/schedstat")
	counted := len(own) > 0 && own[0] != '0'
	for i, c := range rep.Cells {
		if len(c.Contenders) != 10 {
			t.Errorf("got %d contenders, want 10: %s and 9 others", len(c.Contenders), incr)
		}
		for _, s := range c.Contenders {
			if cpu, ok := s.Median["redis_cpu_us"]; ok != counted || ok && !(cpu > 0.1 && cpu < 10_000) {
				t.Errorf("cell %d, %s: got Redis CPU %v, known %v, want 0.1 to 10,000 µs, known %v", i, s.Name, cpu, ok, counted)
			}
			if reads := s.Median["reads"]; s.Kind == ours && (i == 0) != (reads > 0.9) {
				t.Errorf("cell %d, %s: got %v reads per decision, want more than 0.9 only in cell 0", i, s.Name, reads)
			}
		}
	}
	if !math.IsNaN(threadCPU([]int{os.Getpid(), -1})) {
		t.Error("got a CPU time for a process that does not exist, want NaN")
	}
}

// testServer starts a redis-server for a test.
func testServer(t *testing.T) *server {
	t.Helper()
	needRedis(t)
	srv, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.stop)
	return srv
}

// TestHeld makes the contender for keys with a hold ready, and checks that a unit of the first and of the last
// key is held. It also checks that the cell's batch size reaches the limiter, which refuses batches of 1,001.
func TestHeld(t *testing.T) {
	srv := testServer(t)
	in := cell{callers: 1, keys: 200, scenario: admitted}
	both := connect(in, srv.addr)
	defer both.close()
	b, c := &benchmark{server: srv, decided: map[decidedKey]bool{}}, variants()[0].held()
	r, err := b.ready(t.Context(), c, in, both, both)
	if err != nil {
		t.Fatal(err)
	}
	w := &setup{in, both, in.limit(), c.id}
	lim, err := core.New(both.rdb, w.name(), core.TokenBucket(rate(w.limit)))
	if err != nil {
		t.Fatal(err)
	}
	in.batch = 1001
	if _, err := c.make(&setup{in, both, in.limit(), c.id}); err == nil {
		t.Error("got no error for batches of 1,001, want one")
	}
	for _, i := range []int{0, 199} {
		if res, err := lim.Peek(t.Context(), hundredth(r.keys[i])); err != nil || res.Remaining >= res.Limit {
			t.Errorf("key %d: got %+v, %v, want a unit held", i, res, err)
		}
	}
}

// TestProcesses runs the program with callers in two processes, once for a cell and once for the contests.
func TestProcesses(t *testing.T) {
	program := built(t)
	for flags, want := range map[string]string{
		"-rounds 1 -slice 20ms -callers 4 -keys 1 -contenders TokenBucket,.Lease": "2 processes with 4 callers each, 1 key",
		"-early -slice 1ms": "| FixedWindow, Lease(100ms) | 150 % |",
	} {
		out, err := exec.CommandContext(t.Context(), program, strings.Fields("-processes 2 "+flags)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: got error %v and no %q, want the latter, in:\n%s", flags, err, want, out)
		}
	}
}

// TestJudge counts the decisions of a contest. The request 3 µs after the first two is denied too early: a lease has
// the unit that it would get from a single process. The request at 5 µs gets that unit instead.
func TestJudge(t *testing.T) {
	t.Parallel()
	const start, later = 1_800_000_000_000_000, 2_000_000
	for _, window := range []bool{false, true} {
		c := &contest{Window: window, Rate: 4, Burst: 4}
		o := c.judge([]event{
			{At: start + later + 5, Allowed: true},
			{At: start + later + 3}, {At: start + later, Allowed: true, Leased: true}, {At: start + later, Allowed: true},
			{At: start + later + 4, Allowed: true}, {At: start + later + 6}, {At: start, Allowed: true}, // the last one is in the warm-up
		})
		if want := (outcome{requests: 6, admitted: 4, leased: 1, denied: 2, early: 1, would: 4}); o != want {
			t.Errorf("window %v: got %+v, want %+v", window, o, want)
		}
	}
}

// TestParse checks the number of cells that a command line chooses, and that invalid command lines are refused.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  string
		cells int // 0: want an error
	}{
		{"", 10},
		{"-quick", 6},
		{"-full", 32},
		{"-redis-cpu", 2},
		{"-redis-cpu -quick", 0},
		{"-redis-cpu -callers 1", 0},
		{"-redis-cpu -processes 2", 0},
		{"-callers 1,64", 2},
		{"-callers 16 -keys 1,10000 -scenarios denied -latency 0s,1ms", 4},
		{"-zipf 0,1.1", 4},
		{"-processes 3", 1},
		{"-processes 2 -callers 1,64 -zipf 1.1", 2},
		{"-processes 2 -latency 1ms", 0},
		{"-processes 17", 0},
		{"-early", 0},
		{"-zipf 1", 0},
		{"-zipf x", 0},
		{"-cluster", 2},
		{"-cluster -callers 1,64,256 -keys 1,10000", 6},
		{"-cluster -latency 1ms", 0},
		{"-cluster -processes 2", 0},
		{"-callers 0", 0},
		{"-keys x", 0},
		{"-scenarios half", 0},
		{"-latency 1", 0},
		{"-contenders (", 0},
		{"-rounds 0", 0},
		{"more", 0},
	} {
		o, err := parse(strings.Fields(c.args))
		switch {
		case (err != nil) != (c.cells == 0):
			t.Errorf("%q: got error %v, want an error: %v", c.args, err, c.cells == 0)
		case err == nil && len(o.cells) != c.cells:
			t.Errorf("%q: got %d cells, want %d: %v", c.args, len(o.cells), c.cells, o.cells)
		}
	}
}

// TestFigures checks medians and ratios. The speed of the machine differs from round to round, which changes the
// values but not the ratios.
func TestFigures(t *testing.T) {
	t.Parallel()
	runners := []*runner{{contender: &contender{name: incr, kind: raw}}, {contender: &contender{name: "a", kind: ours}},
		{contender: &contender{name: "b", kind: peer}}, {contender: &contender{name: "c", kind: peer}}}
	var rounds []round
	for _, machine := range []float64{1, 4, 2} { // the speed of the machine in each round
		var rd round
		for _, own := range []float64{100, 50, 20, 25} {
			f := make(figures, len(metrics()))
			for i := range f {
				f[i] = own * machine
			}
			rd = append(rd, f)
		}
		rounds = append(rounds, rd)
	}
	for i, s := range summarize(runners, rounds) {
		for m, metric := range metrics() {
			best := 20.0
			if metric.higher {
				best = 25
			}
			own := rounds[0][i][m]
			if s.value[m] != 2*own || s.toIncr[m] != own/100 || s.toPeer[m] != own/best {
				t.Errorf("%s, %s: got %v, %v, %v, want %v, %v, %v", s.name, metric.id,
					s.value[m], s.toIncr[m], s.toPeer[m], 2*own, own/100, own/best)
			}
		}
	}
}

// TestNumbers checks how numbers are formatted and rounded.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		grouped(0): "0", grouped(999): "999", grouped(1000): "1,000", grouped(1234567.8): "1,234,568",
		fixed(math.NaN(), 2): "–", fixed(0.123, 2): "0.12", fixed(12.345, 2): "12.3", fixed(123.45, 2): "123", fixed(12345, 2): "12,345",
		ratio(0.456): "0.46", ratio(1): "1.0", ratio(1234): "1,234",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for v, want := range map[float64]float64{0: 0, 0.123456: 0.1235, 12345.6: 12350, 99999: 100000} {
		if got := significant(v); got != want {
			t.Errorf("significant(%v): got %v, want %v", v, got, want)
		}
	}
}
