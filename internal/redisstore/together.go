package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// maxStoresTogether bounds how many combinations a Store remembers. Beyond that it forgets them
// all.
const maxStoresTogether = 1000

var storeNumber atomic.Uint64

// ErrApart says that keys are to be decided on one by one. Most often they are of several servers,
// or may be; Together says when else.
var ErrApart = errors.New("no script may have all these keys")

// A Part is a key of one Store that is decided on together with those of others.
type Part struct {
	Store *Store
	*Call
}

// Together returns the Store that decides on all parts by one script: all are charged, or none. The
// error is ErrApart unless it is known that one script may have all the keys, and for one part, for
// limits with slots, for too many limits, and for one key twice. Where it is not known, a server
// that is up is asked first, within the timeout: if it does not answer, that is the error.
func Together(ctx context.Context, parts []Part) (*Store, error) {
	if len(parts) < 2 {
		return nil, ErrApart
	}
	first, keys, oneKey := parts[0].Store, 0, true
	for i, p := range parts {
		keys += len(p.Limits.tails)
		if p.Store.servers != first.servers || p.Limits.hasSlots || keys > algorithm.MaxLimits {
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
	return first.combine(parts), nil
}

// oneServer reports whether one script may have any keys.
func (s *Store) oneServer(ctx context.Context) (bool, error) {
	sv := s.servers.whole
	if _, one := s.servers.client.(*redis.Client); !one || sv.knownTogether() || !sv.up() {
		return one && sv.knownTogether(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return sv.awaitSharding(ctx, s)
}

// combine returns the Store for the stores of parts. What their limits are may differ from call to
// call, as in one Store.
func (s *Store) combine(parts []Part) *Store {
	var inline [8 * algorithm.MaxLimits]byte
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

// newTogether returns a Store that is one more way to the server of its parts: it is not told of
// what happens to that, and the first of them probes it.
func newTogether(parts []Part) *Store {
	first := parts[0].Store
	s := &Store{Config: first.Config, servers: first.servers, head: first.head}
	for _, p := range parts {
		part := p.Store
		if part.timed && !s.timed {
			s.timed, s.Clock = true, part.Clock
		}
		s.MaxBatch = min(s.MaxBatch, part.MaxBatch)
		s.stores, s.members = append(s.stores, part), append(s.members, part.members...)
		s.form.Groups = append(s.form.Groups, algorithm.Group{Limits: len(part.members), Bans: part.form.Bans})
	}
	s.init()
	return s
}

// DecideAll decides on all parts, by what Together returned for them.
func (s *Store) DecideAll(ctx context.Context, parts []Part) error {
	for i, p := range parts[1:] {
		parts[i].next = p.Call
	}
	return s.Decide(ctx, parts[0].Call)
}

// sameLimits reports whether d and other, of one Store, decide by the same limits.
func (d *Call) sameLimits(other *Call) bool {
	return d == nil || d.Limits == other.Limits && d.next.sameLimits(other.next)
}

// asks reports whether d and other, which decide by the same limits, ask for the same.
func (d *Call) asks(other *Call) bool {
	return d == nil || d.N == other.N && d.Op == other.Op && d.Bans == other.Bans && d.next.asks(other.next)
}
