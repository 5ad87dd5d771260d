package algorithm

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// An Operation is one operation on a key, with its arguments. It does not say which limits the key has.
type Operation struct {
	Op   Op
	Bans bool  // whether a denial because of charged units bans the key; only for limiters whose Bans are not empty
	N    int64 // the number of units; for OpBlock, the duration of the ban in microseconds

	Actual  int64 // for OpSettle: the actual cost
	HoldID  int64 // in Redis: the id of slots, and of holds if their key has no id yet; if 0, Append makes one
	AtLeast bool  // for OpBlock: a ban that ends later stays as it is

	// Handles has one handle for each limit. OpSettle, OpRefund, OpRenew and OpRelease are about the
	// charges and holds that these handles identify. A decision writes the handles of its charges and
	// holds into Handles, and OpRenew the handles of the renewed holds. For OpReserve, the A of a handle is
	// at first the duration of the hold, in microseconds, or 0 for the duration that the limit has.
	// Handles may be nil for a decision, OpReset and OpBlock.
	Handles []Handle
}

// NewHoldID returns a new id for holds. The id need not be secret, because it only distinguishes holds.
func NewHoldID() int64 { return 1 + rand.Int64N(1<<48) }

// Append appends the arguments of a call that is not a plain decision. If the call also needs arguments about
// bans, or constants, the caller appends them afterwards. holds has the HoldDuration of each limit. The
// caller makes that slice once for all calls.
func (c Operation) Append(args, holds []any) []any {
	// Lua would round a number above maxInstant. No limit admits that many units anyway.
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

// How many integers a reply has. The short form has replyLen for each limit, and the long form otherReplyLen.
// A plain decision gets the short form, unless it finds holds, something unusual or a queue with free places,
// or decides on a queue and other limits together. OpBlock also gets the short form, and so does every call
// that was not carried out, or only in part (the values 2, 4 and 5 below). All other calls get the long form.
// After the limits, either form has banReplyLen integers for each limiter with bans.
const (
	replyLen      = 5
	otherReplyLen = 8
	banReplyLen   = 3
)

// The first integer of a reply. In the short form, it is 1 if the first limit admits and 0 if it denies. In
// the long form, it is 7 or 6 instead, and for a call that is no decision always 7. The values 2, 4 and 5 of the
// short form are about the whole call, as is the 1 of OpBlock.
const (
	undone = 2 // nothing was done, because the call failed or the calls before it took too long
	partly = 4 // the call failed after it had changed something
	// 5: nothing was decided, because the key is banned; see DecodeBan
	otherReply = 6 // the difference between the two forms: 6 means 0, and 7 means 1
)

// SplitReply splits the reply to several calls. It returns the part about the limits of the first call, the
// part about its bans, and the rest. limits is how many limits that call has, and bans how many of its
// limiters have bans.
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

// Undone reports whether reply, the reply to one of several calls, says that the call was not carried out and
// must be made again. It reports false for a decision on a banned key, which has an answer: the ban.
func Undone(reply []int64) bool { return len(reply) > 0 && reply[0] == undone }

// ErrPartly is the error of a call that failed after it had changed some of its limits. The call must
// not be repeated. (If a script has only one call, that call gets the error of Redis instead.)
var ErrPartly = errors.New("redis has changed some of the limits, and failed then")

// ErrReply is the error of a reply that the scripts never give. It does not mean that the server is
// unavailable. It usually concerns only one call. If the whole reply to a script has a wrong length, it
// concerns all calls of the script.
var ErrReply = errors.New("unexpected reply from redis")

// DecodeReply decodes the reply to one call, as SplitReply returns it. The caller must first have checked
// that the reply is not Undone, and that the key was not banned before. DecodeReply returns ErrPartly if the
// call has failed after it had changed some of its limits. The reply may come from a faulty proxy, so
// DecodeReply returns ErrReply if the length is wrong, or if a number that it needs is out of range. For a
// decision, DecodeReply writes the answer of each limit to answers. Unless call.Handles is nil, it writes the
// handles of charges and holds to call.Handles.
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
			if each == replyLen { // there are no free places; after a charge, the epoch is in the place of C
				handle.A, o.C = o.C, 0
			}
			valid = valid && o.C >= 0 && max(o.C, held) < 1<<packed
			o.C, held = pack(o.C, held), 0 // a queue has its largest free place where other limits have their held units
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

// setHandle sets h to the handle of the charge or hold that call has made after it observed o. replied is the
// handle in the reply. If the operation neither charges nor holds anything, or has found no hold to renew, h
// stays as it is; if m has slots, h becomes the zero Handle instead. If a limit has denied, h means nothing.
func (m Limit) setHandle(h *Handle, call Operation, o Observation, replied Handle) {
	q, queues := m.Evaluator.(*queue)
	switch {
	case m.Slots: // replied is the zero Handle if the slots are lost
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
