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
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

type lostError struct{}

func (lostError) Error() string { return "CLUSTERDOWN Hash slot not served" } // nothing was carried out; says nothing about the server's health
func (lostError) RedisError()   {}

// A replyLostError leaves open whether the call was carried out, and so it must not be repeated. It says
// nothing about the server's health either, as a timeout would.
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
	if running != nil {
		running.sent = true
	}
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
	} else if strings.Contains(err.Error(), "wrong by more than a window") { // it was on its way for as long
		return fail("refused by a calendar", lostError{})
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
	settled *spend // what it settles; nil: it decides
	share   int64  // by the limits of this share
	sent    bool   // something
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

// firstCall is where a script says at which argument its calls begin, and plainWidth how many a plain decision takes.
var (
	firstCall  = regexp.MustCompile(`local base, at, [a-z_, ]+ = 0, (\d+),`)
	plainWidth = regexp.MustCompile(`local width = plain and (\d+)`)
)

var storedWindow = regexp.MustCompile(`^[A-Z]1 (\d+) (\d+)`)

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
	decides := false
	for _, c := range h.calls(cmd) {
		step = h.next()
		switch {
		case c.op == string(algorithm.OpReserve) && c.lasts > 0: // a lease
			decides = true
			if admitted(cmd, len(h.limits)) {
				m.taken[m.running.share] = step
			}
		case c.op <= "2":
			decides = true
		case c.op == "3" && (m.running == nil || m.running.settled == nil):
			h.settled(m, c, step)
		case c.op == "5":
			h.resets = append(h.resets, step)
		}
	}
	if x := m.running; x != nil && (x.settled == nil) == decides {
		x.step, x.at = h.next(), h.instants()
		if x.settled != nil { // now: the reply may come after the expiry
			x.settled.charge(x.step)
		}
	}
	for i, l := range h.limits {
		if l.kind == spends.Windows {
			h.noteWindow(i, l)
		}
	}
}

// admitted reports whether the script has held units for its only call.
func admitted(cmd redis.Cmder, limits int) bool {
	reply := cmd.(interface{ Val() []int64 }).Val()
	for i := range limits {
		if reply[i*len(reply)/limits]%6 != 1 { // 7 is 1 with a longer reply
			return false
		}
	}
	return true
}

// noteWindow notes the window of l that was opened last.
func (h *history) noteWindow(i int, l *limit) {
	get := redis.NewStringCmd(context.Background(), "get", "rl:lease:{k}:"+limits.Key(h.with(historyCount, 1)[i]))
	_ = h.driven.Process(context.Background(), get)
	if f := storedWindow.FindStringSubmatch(get.Val()); f != nil {
		start, _ := strconv.ParseInt(f[2], 10, 64)
		if n := len(l.opened); n == 0 || l.opened[n-1].Start < start {
			l.opened = append(l.opened, spends.Window{Start: start, End: start + l.period.Microseconds()})
		}
	}
}

// A call is one call of a script. For a plain decision, only the operation is set.
type call struct {
	op                  string
	n, m, lasts, expiry int64 // the last two are those of the first limit: what a lease is held for, and what else has a handle
}

// calls returns the calls of a script.
func (h *history) calls(cmd redis.Cmder) (calls []call) {
	args := cmd.Args()
	text := fmt.Sprint(args[1])
	if cmd.Name() == "evalsha" {
		if text = h.driven.Source(text); text == "" {
			h.t.Fatal("a script that is not known")
		}
	}
	number := func(v any) int64 {
		n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		return n
	}
	argv := args[3+number(args[2])+number(firstCall.FindStringSubmatch(text)[1])-1:]
	for len(argv) > 0 {
		c, width := call{op: fmt.Sprint(argv[0])}, number(plainWidth.FindStringSubmatch(text)[1])
		if c.op > string(algorithm.OpCharge) {
			c.n, c.m, c.lasts, c.expiry = number(argv[1]), number(argv[2]), number(argv[3]), number(argv[4])
			width = int64(3 + 2*len(h.limits))
		}
		if c.op == string(algorithm.OpRenew) {
			width += int64(len(h.limits))
		}
		if c.n == 0 && (c.op == string(algorithm.OpReserve) || c.op == string(algorithm.OpRenew)) {
			h.t.Errorf("a hold of no units: %+v", c)
		}
		calls, argv = append(calls, c), argv[width:]
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
