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

// maxStoresTogether bounds how many combinations a Store remembers. If there are more, it forgets
// all of them.
const maxStoresTogether = 1000

// storeNumber is the number of the Store that was made last.
var storeNumber atomic.Uint64

// ErrApart says that the limiters must decide one after the other. In most cases, the reason is that the
// keys are or may be on several servers. Together lists the other reasons.
var ErrApart = errors.New("no single script may use all these keys")

// A Part is a call of one Store that is made together with calls of other Stores.
type Part struct {
	Store *Store
	*Call
}

// Together returns the Store that decides on all parts by one script, which charges all of them or none.
//
// Together returns ErrApart in the following cases:
//
//   - There is only one part.
//   - The Stores do not share their client and timeout.
//   - A limit has slots.
//   - There are more than [algorithm.MaxLimits] limits and bans.
//   - Two parts have the same key, and limiters of the same prefix and name.
//   - It is not known that one script may have all the keys.
//
// If it is not known yet whether one script may have all the keys, and the server is up, Together
// finds this out within the timeout, and returns an error if the server does not answer.
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
				return nil, ErrApart // both calls would charge what is stored now, and one charge would be lost
			}
		}
		oneKey = oneKey && p.Key == parts[0].Key
	}
	// All Redis keys of one user's key have one hash slot, so a Cluster or a Ring has them on one server. But what
	// looks like a single server may be a proxy that does not know hash slots.
	if !oneKey || (first.servers.cluster == nil && first.servers.ring == nil) {
		switch oneScript, err := first.mayShareScript(ctx); {
		case err != nil:
			return nil, err
		case !oneScript:
			return nil, ErrApart
		}
	}
	return first.combine(parts), nil
}

// mayShareScript reports whether one script may have any keys of the client. If this is not known yet and
// the server is up, mayShareScript finds it out. For a client that is not a redis.Client, it reports false.
func (s *Store) mayShareScript(ctx context.Context) (bool, error) {
	n := s.servers.whole
	if _, single := s.servers.client.(*redis.Client); !single || n.allowsOneScript() || !n.up() {
		return single && n.allowsOneScript(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return n.awaitSharding(ctx, s)
}

// combine returns the Store for the Stores of parts. It makes the Store when it is first called for
// them. As in any Store, the numbers of the limits may differ from call to call.
func (s *Store) combine(parts []Part) *Store {
	var inline [8 * algorithm.MaxLimits]byte
	id := inline[:0]
	for _, p := range parts {
		id = binary.AppendUvarint(id, p.Store.number)
	}
	if known := s.combined.Load(); known != nil && (*known)[string(id)] != nil {
		return (*known)[string(id)]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]*Store)
	if known := s.combined.Load(); known != nil && len(*known) < maxStoresTogether {
		next = maps.Clone(*known)
	}
	if next[string(id)] == nil {
		next[string(id)] = newTogether(parts)
	}
	s.combined.Store(&next)
	return next[string(id)]
}

// newTogether returns a Store that decides for the Stores of parts, on their server. It has no
// subscription: the Stores of parts are notified of outages, and probes use any open Store of a limiter. It
// has the Hooks of the first Store, so only the limiter of that Store is notified of calls that fail.
func newTogether(parts []Part) *Store {
	first := parts[0].Store
	s := &Store{Config: first.Config, servers: first.servers, head: first.head}
	for _, p := range parts {
		part := p.Store
		if part.timed && !s.timed {
			s.timed, s.Clock = true, part.Clock
		}
		s.MaxBatch = min(s.MaxBatch, part.MaxBatch)
		s.stores, s.limits = append(s.stores, part), append(s.limits, part.limits...)
		s.form.Groups = append(s.form.Groups, part.form.Groups...)
	}
	s.init()
	return s
}

// DecideAll decides on all parts. s must be the Store that Together returned for their Stores, in
// the same order.
func (s *Store) DecideAll(ctx context.Context, parts []Part) error {
	for i, p := range parts[1:] {
		parts[i].next = p.Call
	}
	return s.Decide(ctx, parts[0].Call)
}

// sameLimits reports whether d and other, which are calls of one Store, have the same limits.
func (d *Call) sameLimits(other *Call) bool {
	return d == nil || d.Limits == other.Limits && d.next.sameLimits(other.next)
}

// sameDecision reports whether d and other, which have the same limits, ask for the same decision.
func (d *Call) sameDecision(other *Call) bool {
	return d == nil || d.N == other.N && d.Op == other.Op && d.Bans == other.Bans && d.next.sameDecision(other.next)
}
