package server

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/key"
)

const (
	// maxTogether bounds the Redis keys of a decision on several: a Lua function has 200 variables.
	maxTogether = 12
	// maxStoresTogether bounds how many combinations a Store remembers. Beyond that it forgets them all.
	maxStoresTogether = 1000
)

var storeNumber atomic.Uint64

// ErrApart says that keys are to be decided on one by one: they are of several servers, or may be.
var ErrApart = errors.New("no script may have all these keys")

// A Part is a key of one Store that is decided on together with those of others.
type Part struct {
	Store *Store
	*Decision
}

// Together returns the Store that decides on all parts by one script: all are charged, or none. The error is
// ErrApart where no script may have all the keys, or that of a server that does not answer: the first call finds out, within
// the timeout, that it is one.
func Together(ctx context.Context, parts []Part) (*Store, error) {
	if len(parts) < 2 {
		return nil, ErrApart
	}
	first, keys, oneKey := parts[0].Store, 0, true
	for i, p := range parts {
		keys += len(p.Limits.tails)
		if p.Store.servers != first.servers || p.Store.alwaysHold || keys > maxTogether {
			return nil, ErrApart
		}
		for _, before := range parts[:i] {
			if p.Store.head == before.Store.head && p.Key == before.Key {
				return nil, ErrApart // by other numbers: both would charge what is stored now
			}
		}
		oneKey = oneKey && p.Key == parts[0].Key
	}
	// Of one user's key all Redis keys have one hash slot. A proxy may not know of slots.
	if !oneKey || first.servers.cluster == nil && first.servers.ring == nil {
		switch one, err := first.oneServer(ctx); {
		case err != nil:
			return nil, err
		case !one:
			return nil, ErrApart
		}
	}
	return first.together(parts), nil
}

// oneServer reports whether one script may have any keys.
func (s *Store) oneServer(ctx context.Context) (bool, error) {
	sv := s.servers.whole
	if _, one := s.servers.client.(*redis.Client); !one || sv.knownTogether() || !sv.up() {
		return one && sv.knownTogether(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return sv.together(ctx, s)
}

// together returns the Store for the stores of parts. What their limits are may differ from call to call, as in one Store.
func (s *Store) together(parts []Part) *Store {
	var inline [8 * maxTogether]byte
	id := inline[:0]
	for _, p := range parts {
		id = binary.AppendUvarint(id, p.Store.number)
	}
	if known := s.withOthers.Load(); known != nil && (*known)[string(id)] != nil {
		return (*known)[string(id)]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*Store)
	if known := s.withOthers.Load(); known != nil && len(*known) < maxStoresTogether {
		next = maps.Clone(*known)
	}
	if next[string(id)] == nil {
		next[string(id)] = newTogether(parts)
	}
	s.withOthers.Store(&next)
	return next[string(id)]
}

// newTogether returns a Store that is one more way to the server of its parts: it is not told of what happens to that, and
// the first of them probes it.
func newTogether(parts []Part) *Store {
	first := parts[0].Store
	s := &Store{
		servers: first.servers, limits: first.limits, timeout: first.timeout, clock: first.clock, hooks: first.hooks, owner: first.owner,
		head: first.head, maxBatch: first.maxBatch,
	}
	for _, p := range parts {
		part := p.Store
		if part.moves && !s.moves {
			s.moves, s.clock = true, part.clock
		}
		s.maxBatch = min(s.maxBatch, part.maxBatch)
		s.stores, s.members = append(s.stores, part), append(s.members, part.members...)
		s.form.Groups = append(s.form.Groups, algorithm.Group{Limits: len(part.members), Bans: part.form.Bans})
	}
	s.init()
	return s
}

// DecideAll decides on all parts, by what Together returned for them.
func (s *Store) DecideAll(ctx context.Context, parts []Part) error {
	parts[0].others = parts[1:]
	return s.Decide(ctx, parts[0].Decision)
}

// prober returns the Store that probes the server of s.
func (s *Store) prober() *Store {
	if s.stores != nil {
		return s.stores[0]
	}
	return s
}

// allKeys returns a text that is that of no other keys.
func (d *Decision) allKeys() string {
	if d.others == nil {
		return d.Key
	}
	keys := []string{d.Key}
	for _, o := range d.others {
		keys = append(keys, o.Key)
	}
	return strings.Join(keys, "\x00")
}

// needsHoldTogether reports whether one of the keys has holds.
func (s *Store) needsHoldTogether(d *Decision) bool {
	if s.stores[0].keysWithHolds.has(d.Key) {
		return true
	}
	for _, o := range d.others {
		if o.Store.keysWithHolds.has(o.Key) {
			return true
		}
	}
	return s.keysWithHolds.cells.Load() != nil && s.keysWithHolds.has(d.allKeys())
}

// part returns the decision on the i-th of the keys.
func (d *Decision) part(i int) *Decision {
	if i == 0 {
		return d
	}
	return d.others[i-1].Decision
}

// sameLimits reports whether d and other, of one Store, decide by the same limits.
func (d *Decision) sameLimits(other *Decision) bool {
	return d.Limits == other.Limits &&
		slices.EqualFunc(d.others, other.others, func(a, b Part) bool { return a.Limits == b.Limits })
}

// asks reports whether d and other, which decide by the same limits, ask for the same.
func (d *Decision) asks(other *Decision) bool {
	return d.N == other.N && d.Op == other.Op && d.Bans == other.Bans &&
		slices.EqualFunc(d.others, other.others, func(a, b Part) bool { return a.asks(b.Decision) })
}

// appendKeysTogether appends the Redis keys of d: those of all limits, and then those of bans.
func (s *Store) appendKeysTogether(dst []any, d *Decision) []any {
	var bans []any
	for i, store := range s.stores {
		o := d.part(i)
		k, limits := store.head+key.Encode(o.Key), len(o.Limits.members)
		for _, tail := range o.Limits.tails[:limits] {
			dst = append(dst, k+tail)
		}
		for _, tail := range o.Limits.tails[limits:] {
			bans = append(bans, k+tail)
		}
	}
	return append(dst, bans...)
}

// appendCallTogether appends the arguments of the script hold, in which each limit has units of its own.
func (d *Decision) appendCallTogether(args []any) []any {
	args = append(args, string(d.Op), 0, 0)
	args = d.appendOwnUnits(args)
	for _, o := range d.others {
		args = o.appendOwnUnits(args)
	}
	return d.appendBans(args)
}

func (d *Decision) appendOwnUnits(args []any) []any {
	for range d.Limits.members {
		args = append(args, 0, d.Units())
	}
	return args
}

// decodeTogether reads the reply to a decision on several keys.
func (d *Decision) decodeTogether(reply []int64, needsHold bool) error {
	size := 0
	for i := range len(d.others) + 1 {
		its, ban := d.part(i).Limits.replyLen(needsHold)
		size += its - ban
	}
	if len(reply) < size {
		return algorithm.UnexpectedLength(len(reply), size)
	}
	bans, barred := reply[size:], false
	for i := range len(d.others) + 1 {
		o := d.part(i)
		_, length := o.Limits.replyLen(needsHold)
		if length == 0 {
			continue
		}
		if len(bans) < length {
			return algorithm.UnexpectedLength(len(bans), length)
		}
		_, b, err := algorithm.CutBan(bans[:length], length)
		if err != nil {
			return err
		}
		o.setBan(b)
		bans, barred = bans[length:], barred || b.Until > 0 && !b.Began
	}
	if barred { // the limits were not asked
		return nil
	}
	for i := range len(d.others) + 1 {
		o := d.part(i)
		its, ban := o.Limits.replyLen(needsHold)
		decode := algorithm.DecodeReply
		if needsHold {
			decode = algorithm.DecodeHoldReply
		}
		if err := decode(reply[:its-ban], o.HoldCall, o.Limits.members, o.Answers); err != nil {
			return err
		}
		reply = reply[its-ban:]
	}
	return nil
}
