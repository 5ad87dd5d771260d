package algorithm

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// A HoldCall is what a call asks for, whatever its limits are.
type HoldCall struct {
	Op   Op
	Bans bool  // a denial of n units bans, if what is charged denies them: for limiters with Bans
	N, M int64 // N units. M is the actual cost of OpSettle, and of what holds the id of its holds; 0: any id
	// Handles are those of what OpSettle, OpRefund, OpRenew and OpRelease are about, one for each
	// limit. For what decides they are where the reply's are written, if they are not nil; of
	// OpReserve A is for how long units are held, if it is not 0.
	Handles []Handle
}

// NewHoldID returns an id for holds that begin.
func NewHoldID() int64 { return 1 + rand.Int64N(1<<48) } // it is no secret, and only tells holds apart

// Append appends the arguments of a call that is no plain decision. holds say for how long the
// units of each limit are held: they are the same for all calls, and take memory once.
func (c HoldCall) Append(args, holds []any) []any {
	m := c.M
	if m == 0 && (c.Op == OpReserve || c.Op == OpCharge) {
		m = NewHoldID()
	}
	args = append(args, string(c.Op), min(c.N, maxInstant), m) // more units fit nowhere, and Lua would round them
	for i, hold := range holds {
		var h Handle
		if c.Handles != nil {
			h = c.Handles[i]
		}
		if c.Op == OpCharge || c.Op == OpReserve && h.A == 0 {
			args = append(args, hold, h.B)
		} else {
			args = append(args, h.A, h.B)
		}
	}
	if c.Op == OpRenew {
		args = append(args, holds...)
	}
	return args
}

// How many integers a script replies: for each limit to a plain decision on a key without holds,
// for each limit to any other call, where one is a queue too, and for each limiter with bans.
const (
	replyLen      = 5
	otherReplyLen = 8
	banReplyLen   = 3
)

// What a script replies first, instead of 1 or 0.
const (
	undone = 2 // nothing was done: it failed, or the calls before it took long
	partly = 4 // it failed, and something has changed
	// 5: nothing was done, because the key is banned; see DecodeBan
	otherReply = 6 // 0, but with otherReplyLen integers for each limit; and 7 is 1
)

// SplitReply returns the reply to the next of several calls about so many limits, what it says of
// so many bans, and what follows.
func SplitReply(reply []int64, limits, bans int) (next, banned, rest []int64, err error) {
	size := replyLen * limits
	if len(reply) > 0 && reply[0] >= otherReply {
		size = otherReplyLen * limits
	}
	end := size + banReplyLen*bans
	if len(reply) < end {
		return nil, nil, nil, UnexpectedLength(len(reply), end)
	}
	return reply[:size], reply[size:end], reply[end:], nil
}

// Undone reports whether reply, to one of several calls, says that nothing was done.
func Undone(reply []int64) bool { return len(reply) > 0 && reply[0] == undone }

// ErrPartly is the error of a call that failed after it had changed something: it must not be
// repeated.
var ErrPartly = errors.New("redis has changed some of the limits, and failed then")

// ErrReply is the error of a reply that the scripts never give: it is one call's, and says nothing
// about the server.
var ErrReply = errors.New("unexpected reply from redis")

// DecodeReply reads the reply to one call, as SplitReply returns it. It refuses what the script
// never replies: a faulty proxy might, or another version of this library. It writes the answers of
// what decides; and the handles of what charges or holds to those of the call, if they are not nil.
func DecodeReply(reply []int64, call HoldCall, limits []Member, answers []Answer) error {
	each := len(reply) / len(limits)
	switch {
	case len(reply) > 0 && reply[0] == partly:
		return ErrPartly
	case len(reply) == otherReplyLen*len(limits):
	case call.Op > OpCharge && call.Op < OpBlock || len(reply) != replyLen*len(limits):
		return UnexpectedLength(len(reply), otherReplyLen*len(limits))
	}
	decides := call.Op <= OpReserve
	for i, m := range limits {
		n := reply[i*each : (i+1)*each]
		done, rest := n[0], [otherReplyLen - replyLen]int64{}
		if copy(rest[:], n[replyLen:]) > 0 {
			done -= otherReply
		}
		held, handle := rest[0], Handle{rest[1], rest[2]}
		o := Observation{At: n[1], A: n[2], B: n[3], C: n[4]}
		valid := !decides || o.At >= 0 && o.At < maxInstant
		if m.Delays {
			if each == replyLen { // no place is free
				handle.A, o.C = o.C, 0
			}
			valid = valid && o.C >= 0 && max(o.C, held) < 1<<packed
			o.C, held = pack(o.C, held), 0 // the largest free place
		}
		if done < 0 || done > 1 || !valid || decides && !m.Valid(o) || min(held, handle.A, handle.B) < 0 || held >= maxInstant {
			return fmt.Errorf("%w: %v", ErrReply, n)
		}
		if decides {
			answers[i] = Answer{done == 1, o, held}
		}
		if call.Handles != nil {
			m.setHandle(&call.Handles[i], call, o, handle)
		}
	}
	return nil
}

// setHandle sets h to the handle of what call has charged or held after o, as replied says.
func (m Member) setHandle(h *Handle, call HoldCall, o Observation, replied Handle) {
	q, queues := m.Evaluator.(*queue)
	switch {
	case m.Slots: // the zero Handle if they were lost
		*h = replied
	case queues && (call.Op == OpCharge || call.Op == OpReserve):
		*h = q.handle(o, call.N, replied.A)
	case call.Op == OpCharge:
		*h = m.ChargeHandle(o, call.N)
	case call.Op == OpReserve || call.Op == OpRenew && replied.A > 0:
		*h = replied
	}
}

// UnexpectedLength returns the error for a reply of the wrong length.
func UnexpectedLength(got, want int) error {
	return fmt.Errorf("%w: %d numbers, want %d", ErrReply, got, want)
}
