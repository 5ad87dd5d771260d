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

// lostError is the error of a call that did not reach Redis. It says nothing about the server's health.
type lostError struct{}

func (lostError) Error() string { return "CLUSTERDOWN Hash slot not served" }
func (lostError) RedisError()   {}

// A replyLostError leaves open whether the call was carried out, so the call must not be repeated. It says nothing about
// the server's health, unlike a timeout.
type replyLostError struct{ lostError }

func (replyLostError) Error() string   { return "ERR the reply was lost; other limits have changed" }
func (e replyLostError) Unwrap() error { return e.lostError }

type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script." }
func (noScriptError) RedisError()   {}

// Process sends a command to Redis over a bad network.
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
	} else if strings.Contains(err.Error(), "wrong by more than a window") { // the command was on its way for longer than a window
		return fail("refused by a calendar", lostError{})
	}
	m.transit()
	if err == nil && h.random.IntN(40) == 0 {
		return fail("reply lost", replyLostError{})
	}
	return err
}

// transit is the time that a request or a reply is on its way, in which other events happen.
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
	settled *spend // the spend that the call settles; nil if the call decides
	share   int64  // the call decides by limits of this share
	sent    bool   // whether the call sent a script
	step    int
	at      []int64 // when it was executed, on the time scale of each limit
}

// A run is one run of a script: its step, and the time of Redis's clock.
type run struct {
	step  int
	clock int64
}

// chargedAt returns the first step after the given one at which Redis has charged a hold that expires at expiry, or 0. The
// reply that tells the expiry may arrive after that step.
func (h *history) chargedAt(expiry int64, after int) int {
	for _, r := range h.runs {
		if r.step > after && r.clock >= expiry {
			return r.step
		}
	}
	return 0
}

// firstCall matches the place where a script says at which argument its calls begin. plainWidth matches the place where it
// says how many arguments an ordinary decision takes.
var (
	firstCall  = regexp.MustCompile(`local base, at, [a-z_, ]+ = 0, (\d+),`)
	plainWidth = regexp.MustCompile(`local width = plain and (\d+)`)
)

var storedWindow = regexp.MustCompile(`^[A-Z]1 (\d+) (\d+)`)

// executed records what a script did.
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
		case c.op == string(algorithm.OpReserve) && c.lasts > 0: // the script takes a lease
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
		if x.settled != nil { // charged now, because the reply may arrive after the expiry
			x.settled.charge(x.step)
		}
	}
	for i, l := range h.limits {
		if l.kind.Scale() == spends.InOpened {
			h.noteWindow(i, l)
		}
	}
}

// admitted reports whether the script has held units for its only call.
func admitted(cmd redis.Cmder, limits int) bool {
	reply := cmd.(interface{ Val() []int64 }).Val()
	for i := range limits {
		if reply[i*len(reply)/limits]%6 != 1 { // 7 means 1 in a longer reply
			return false
		}
	}
	return true
}

// noteWindow records the newest window of l.
func (h *history) noteWindow(i int, l *limit) {
	get := redis.NewStringCmd(context.Background(), "get", "rl:lease:{k}:"+limits.Key(h.with(historyCount, 1)[i]))
	_ = h.driven.Process(context.Background(), get)
	if f := storedWindow.FindStringSubmatch(get.Val()); f != nil {
		start, _ := strconv.ParseInt(f[2], 10, 64)
		if n := len(l.opened); n == 0 || l.opened[n-1].Start < start {
			l.opened = append(l.opened, spends.Window{Start: start, End: start + l.period.Microseconds()})
		}
	} else if text := get.Val(); text != "" && text[0] != '|' {
		h.t.Fatalf("%s stores %q, and history.noteWindow does not find in it when the window opened: extend storedWindow", l.Name, text)
	}
}

// A call is one call of a script. For an ordinary decision, only the operation is set.
type call struct {
	op                  string
	n, m, lasts, expiry int64 // of the first limit: lasts is the duration of a new hold, and expiry the expiry of the one that the call names
}

// calls returns the calls of a script.
func (h *history) calls(cmd redis.Cmder) (calls []call) {
	args := cmd.Args()
	text := fmt.Sprint(args[1])
	if cmd.Name() == "evalsha" {
		if text = h.driven.Source(text); text == "" {
			h.t.Fatal("a script was sent by its digest before its source")
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
			h.t.Errorf("a script holds no units: %+v, want at least one", c)
		}
		calls, argv = append(calls, c), argv[width:]
	}
	return calls
}

// settled records that units spent from a lease were charged. The expiry of the call is negative if the lease is over by
// the machine's clock. If Redis's clock has stepped back, Redis still has the hold, and charges the units now, so that a
// later Reset forgets them.
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
