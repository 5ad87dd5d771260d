package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A scripted client replies to scripts as a test says, one reply after another.
type scripted struct {
	replies [][]int64
	fails   error    // of a script of several calls, if it is not nil
	ops     []string // of the calls of each script, such as "312"
}

func (c *scripted) Process(_ context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	keys, ok := args[2].(int)
	if !ok {
		return errors.New("no script")
	}
	var ops strings.Builder
	for at := scriptArgs + keys + 3; at < len(args); at += 2 { // behind three constants: a cost, or four more arguments
		op, _ := args[at].(string)
		if ops.WriteString(op); op > "1" {
			at += 3
		}
	}
	c.ops = append(c.ops, ops.String())
	if keys > 1 && c.fails != nil {
		return c.fails
	}
	if len(c.replies) == 0 {
		return errors.New("no more replies")
	}
	cmd.(interface{ SetVal(val []int64) }).SetVal(c.replies[0])
	c.replies = c.replies[1:]
	return nil
}

// exchange returns a Store over c, and a Decision that exchanges a lease.
func (c *scripted) exchange() (*Store, *Decision) {
	limit := algorithm.Member{Kind: algorithm.FixedWindow, Evaluator: algorithm.FixedWindow.New(algorithm.Numbers{Count: 10, Period: 1e6}), Hold: 1e6}
	limits := NewLimits([]algorithm.Member{limit}, []string{"x"}, nil)
	s := NewStore(c, Config{Prefix: "rl", Limiter: "x", Limits: limits, Timeout: time.Minute, MaxBatch: 1})
	d := NewDecision(limits, "k", algorithm.HoldCall{Op: algorithm.OpCharge, N: 1})
	d.Exchange = &Exchange{Held: 5, Spent: 3, Handles: []algorithm.Handle{{A: 7, B: 1_800_000_000_000_000}}, Units: 4, Duration: 1e5}
	return s, d
}

// TestExchangeNotSent has exchanges that were not carried out: the lease before is settled all the
// same, by itself, unless the reply may be lost.
func TestExchangeNotSent(t *testing.T) {
	t.Parallel()
	lost := errors.New("EOF")
	for err, want := range map[error][]string{
		ErrBreakerOpen: {"3"},
		redisError("WRONGTYPE Operation against a key"): {"312", "3"},
		lost: {"312"},
	} {
		client := &scripted{fails: err, replies: [][]int64{{7, 1_800_000_000_000_000, 0, 0, 0, 0, 0, 0}}}
		s, d := client.exchange()
		if errors.Is(err, ErrBreakerOpen) {
			s.servers.whole.state.Store(uint32(down))
		}
		if got := s.Decide(context.Background(), d); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
		s.servers.whole.state.Store(uint32(up))
		s.Close() // it waits
		if !slices.Equal(client.ops, want) {
			t.Errorf("%v: sent %q, want %q", err, client.ops, want)
		}
	}
}

// TestExchange has Redis carry out some of the calls by which a lease is exchanged. The rest is
// carried out by itself, but for the next lease; and nothing twice.
func TestExchange(t *testing.T) {
	t.Parallel()
	const at = 1_800_000_000_000_000
	var (
		done    = []int64{7, at, 0, at, 1e6, 0, 0, 0}
		plain   = []int64{1, at, 0, at, 1e6}
		granted = []int64{7, at, 0, at, 1e6, 0, 7, at + 1000}
		refused = []int64{6, at, 0, at, 1e6, 0, 0, 0}
		nothing = []int64{2, 0, 0, 0, 0}
		partly  = []int64{4, 0, 0, 0, 0}
	)
	for name, c := range map[string]struct {
		replies [][]int64
		ops     []string
		err     error
		grant   bool
	}{
		"all":               {[][]int64{slices.Concat(done, done, granted)}, []string{"312"}, nil, true},
		"no lease":          {[][]int64{slices.Concat(done, done, refused)}, []string{"312"}, nil, false},
		"no time for it":    {[][]int64{slices.Concat(done, done, nothing)}, []string{"312"}, nil, false},
		"not the decision":  {[][]int64{slices.Concat(done, nothing, nothing), plain}, []string{"312", "1"}, nil, false},
		"nothing":           {[][]int64{slices.Concat(nothing, nothing, nothing), done, plain}, []string{"312", "3", "1"}, nil, false},
		"part of a charge":  {[][]int64{slices.Concat(done, partly, nothing)}, []string{"312"}, algorithm.ErrPartly, false},
		"part of the lease": {[][]int64{slices.Concat(done, done, partly)}, []string{"312"}, nil, false},
	} {
		client := &scripted{replies: c.replies}
		s, d := client.exchange()
		lease := d.Exchange
		err := s.Decide(context.Background(), d)
		s.Close()
		if !errors.Is(err, c.err) || !slices.Equal(client.ops, c.ops) {
			t.Errorf("%s: sent %v, %v", name, client.ops, err)
		}
		if (lease.Grant != nil) != c.grant || c.grant && lease.Grant[0] != (algorithm.Handle{A: 7, B: at + 1000}) {
			t.Errorf("%s: granted %v", name, lease.Grant)
		}
		if err == nil && (!d.Answers[0].Admits || d.Answers[0].At != at) {
			t.Errorf("%s: %+v", name, d.Answers[0])
		}
	}
}

// TestUndoneAlone has a single call be replied what only one of several is: that is no reply, and it is not sent again.
func TestUndoneAlone(t *testing.T) {
	t.Parallel()
	client := &scripted{replies: [][]int64{{2, 0, 0, 0, 0}}}
	s, d := client.exchange()
	defer s.Close()
	d.Exchange = nil
	if err := s.Decide(context.Background(), d); !errors.Is(err, algorithm.ErrReply) || len(client.ops) != 1 {
		t.Errorf("sent %v, %v", client.ops, err)
	}
}
