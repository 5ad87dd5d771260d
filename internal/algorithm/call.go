package algorithm

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// An Operation is what a store is called for, with its arguments. It applies to any limits.
type Operation struct {
	Op   Op
	Bans bool  // a denial because of charged units bans the key; only for limiters with Bans
	N    int64 // the number of units; for OpBlock the duration of the ban in microseconds

	Actual  int64 // for OpSettle: the actual cost
	HoldID  int64 // for a call that holds units: the id of its holds; 0 means any id
	AtLeast bool  // for OpBlock: a ban that ends later stays as it is

	// Handles has one handle for each limit. OpSettle, OpRefund, OpRenew and OpRelease are about the
	// charges and holds of these handles. For a decision, the handles of the reply are written into
	// Handles, unless it is nil. For OpReserve, A is the duration of the hold, unless it is 0.
	Handles []Handle
}

// NewHoldID returns a new id for holds. The id is no secret; it only tells holds apart.
func NewHoldID() int64 { return 1 + rand.Int64N(1<<48) }

// Append appends the arguments of a call that is not a plain decision. holds has the duration of
// holds of each limit; it is the same for all calls, so it takes memory only once.
func (c Operation) Append(args, holds []any) []any {
	// No limit has room for more than maxInstant units, and Lua would round a larger number.
	args = append(args, string(c.Op), min(c.N, maxInstant), c.third())
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

// third returns the third argument of a call, whose meaning depends on the operation.
func (c Operation) third() int64 {
	switch c.Op {
	case OpCharge, OpReserve:
		if c.HoldID == 0 {
			return NewHoldID()
		}
		return c.HoldID
	case OpBlock:
		if c.AtLeast {
			return 1
		}
		return 0
	default:
		return c.Actual
	}
}

// The number of integers in a reply. replyLen is for each limit, in the reply to a plain decision on a
// key without holds. otherReplyLen is for each limit in the reply to any other call, and to any call
// with a queue. banReplyLen is for each limiter with bans.
const (
	replyLen      = 5
	otherReplyLen = 8
	banReplyLen   = 3
)

// The first integer of a reply, if it is not 1 (admitted) or 0 (denied).
const (
	undone = 2 // nothing was done, because the call failed or the calls before it took too long
	partly = 4 // the call failed after it had changed something
	// 5: nothing was done, because the key is banned; see DecodeBan
	otherReply = 6 // means 0, with otherReplyLen integers for each limit; 7 means 1 likewise
)

// SplitReply splits the reply to several calls. It returns the part about the next call, which has
// the given numbers of limits and of bans, the part about its bans, and the rest.
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

// Undone reports whether reply, the reply to one of several calls, says that nothing was done.
func Undone(reply []int64) bool { return len(reply) > 0 && reply[0] == undone }

// ErrPartly is the error of a call that failed after it had changed something. Such a call must not
// be repeated.
var ErrPartly = errors.New("redis has changed some of the limits, and failed then")

// ErrReply is the error of a reply that the scripts never give. It concerns one call, and says
// nothing about the server.
var ErrReply = errors.New("unexpected reply from redis")

// DecodeReply decodes the reply to one call, as SplitReply returns it. It returns an error for a
// reply that the script never gives, because a faulty proxy or another version of this library
// might give one. For a decision, it writes the answers to answers. For a charge or a hold, it
// writes the handles to call.Handles, unless that is nil.
func DecodeReply(reply []int64, call Operation, limits []Limit, answers []Answer) error {
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

// setHandle sets h to the handle of the charge or hold that call has made after o. replied is the
// handle in the reply.
func (m Limit) setHandle(h *Handle, call Operation, o Observation, replied Handle) {
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
