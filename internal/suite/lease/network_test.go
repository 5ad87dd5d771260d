package lease_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

type lostError struct{}

func (lostError) Error() string { return "CLUSTERDOWN Hash slot not served" } // nothing was carried out; says nothing about the server's health
func (lostError) RedisError()   {}

// A replyLostError leaves open whether the call was carried out, and so it must not be repeated. Of the server's health it says
// nothing, either: a timeout would.
type replyLostError struct{ lostError }

func (replyLostError) Error() string   { return "ERR the reply was lost; other limits have changed" }
func (e replyLostError) Unwrap() error { return e.lostError }

type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script." }
func (noScriptError) RedisError()   {}

// Process carries a command to Redis, on a bad network.
func (m *machine) Process(ctx context.Context, cmd redis.Cmder) error {
	h := m.h
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return h.driven.Process(ctx, cmd)
	}
	fail := func(what string, err error) error {
		h.happened(what)
		cmd.SetErr(err)
		return err
	}
	running := m.running
	defer func() { m.running = running }()
	m.transit()
	if h.random.IntN(60) == 0 {
		return fail("request lost", lostError{})
	}
	if cmd.Name() == "evalsha" && h.random.IntN(30) == 0 {
		return fail("script forgotten", noScriptError{})
	}
	err := h.driven.Process(ctx, cmd)
	m.running = running
	if cmd.Err() == nil {
		h.executed(m, cmd)
	}
	m.transit()
	if err == nil && h.random.IntN(40) == 0 {
		return fail("reply lost", replyLostError{})
	}
	return err
}

// transit is a while in which other things happen.
func (m *machine) transit() {
	h := m.h
	switch h.random.IntN(30) {
	case 0, 1:
		h.pass(time.Duration(h.random.Int64N(int64(leased))))
	case 2:
		h.happened("late reply")
		h.pass(leased + time.Duration(h.random.Int64N(int64(leased/2))))
	default:
		h.pass(time.Duration(h.random.Int64N(int64(time.Millisecond))))
	}
	if h.depth < 3 && h.random.IntN(8) == 0 {
		h.act()
	}
	if m.asleep() {
		h.pass(m.wakes - h.passed)
	}
}

// An execution is what Redis did for one call.
type execution struct {
	settles bool // it settles a reservation; else it decides
	step    int
	at      []int64 // on the scale by which each limit is judged
}

// A run is one of a script: at which step, and when by Redis's clock.
type run struct {
	step  int
	clock int64
}

// chargedAt returns the step after another at which Redis has charged what expired at expiry, or
// 0: the reply that says by what units are held may come later than that.
func (h *history) chargedAt(expiry int64, after int) int {
	for _, r := range h.runs {
		if r.step > after && r.clock >= expiry {
			return r.step
		}
	}
	return 0
}

var storedWindow = regexp.MustCompile(`^F1 (\d+) (\d+)`)

// executed notes what a script did.
func (h *history) executed(m *machine, cmd redis.Cmder) {
	now := h.driven.Now().UnixMicro()
	step := h.next()
	for _, s := range h.spent {
		for i := range s.each {
			if e := &s.each[i]; e.expiry > 0 && e.Charged == 0 && e.expiry <= now {
				e.Charged = step
			}
		}
	}
	h.runs = append(h.runs, run{step, now})
	calls := h.calls(cmd)
	decides := calls == nil
	for _, c := range calls {
		step = h.next()
		switch {
		case c.op <= "2":
			decides = true
		case c.op == "3" && (m.running == nil || !m.running.settles):
			h.settled(m, c, step)
		case c.op == "5":
			h.resets = append(h.resets, step)
		}
	}
	if x := m.running; x != nil && x.settles != decides {
		x.step, x.at = h.next(), h.instants()
	}
	for i, l := range h.limits {
		if l.kind == spends.Windows {
			h.noteWindow(i, l)
		}
	}
}

// noteWindow notes the window of l that was opened last.
func (h *history) noteWindow(i int, l *limit) {
	get := redis.NewStringCmd(context.Background(), "get", fmt.Sprintf("rl:lease:{k}:x%d", i))
	_ = h.driven.Process(context.Background(), get)
	if f := storedWindow.FindStringSubmatch(get.Val()); f != nil {
		start, _ := strconv.ParseInt(f[2], 10, 64)
		if n := len(l.opened); n == 0 || l.opened[n-1].Start < start {
			l.opened = append(l.opened, spends.Window{Start: start, End: start + l.period.Microseconds()})
		}
	}
}

// A call is one of the script for holds.
type call struct {
	op           string
	n, m, expiry int64 // the expiry is that of the first limit
}

// calls returns those of a script; nil if it is one that decides.
func (h *history) calls(cmd redis.Cmder) []call {
	args := cmd.Args()
	text := fmt.Sprint(args[1])
	if cmd.Name() == "evalsha" {
		if text = h.driven.Source(text); text == "" {
			h.t.Fatal("a script that is not known")
		}
	}
	if !algorithm.IsHoldScript(text) {
		return nil
	}
	width := 3 + 2*len(h.limits)
	keys, _ := strconv.Atoi(fmt.Sprint(args[2]))
	count := keys / len(h.limits)
	argv := args[len(args)-width*count:]
	number := func(v any) int64 {
		n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		return n
	}
	var calls []call
	for i := range count {
		a := argv[width*i:]
		c := call{fmt.Sprint(a[0]), number(a[1]), number(a[2]), number(a[4])}
		if c.n == 0 && (c.op == string(algorithm.OpReserve) || c.op == string(algorithm.OpRenew)) {
			h.t.Errorf("a hold of no units: %+v", c)
		}
		calls = append(calls, c)
	}
	return calls
}

// settled notes that units spent from a lease were charged. Its expiry is negative if it is over by the machine's clock; where
// Redis's has stepped back, Redis still has the hold, and charges them now: a Reset that follows forgets them.
func (h *history) settled(m *machine, c call, step int) {
	left, expiry := c.m, max(c.expiry, -c.expiry)
	for _, s := range h.spent {
		e := s.each[0]
		if s.by == m.id && e.expiry == expiry && e.Charged == 0 && (!s.reserved || s.inLease) && left >= e.Units && e.Units > 0 {
			s.charge(step)
			left -= e.Units
		}
	}
}
