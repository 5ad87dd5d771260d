package redisstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redislimit/redislimit/internal/batch"
)

// send makes the calls of members in one round trip, and records how that ended. This is the one
// way to Redis of all that decides: a caller who goes alone sends for himself, in his own
// goroutine. A caller waits until callerEnd, or if that is nil for the whole call. (Probes and what
// is found out of a server go by Store.call.)
//
// Where the client ends a call with its context's deadline, the call is made in this goroutine:
// another one took a lone call 39 % longer. A caller who cancels does not end it; if it fails,
// package core returns the error of ctx. Any other call is made in another goroutine. So is one to
// a server that is far, whose connection is made although its first caller has left. A caller with
// less time, or who has waited before, leaves the call: it may take its whole timeout.
func (s *Store) send(ctx context.Context, sv *Server, members []*Call, place batch.Place[*Call], callerEnd *sharedTimer) error {
	c := calls{sv, members, place, time.Now()}
	callEnd := s.deadlines.at(c.begun)
	hasWaited := callerEnd != nil && callerEnd != callEnd
	if !s.servers.ctxDeadlines || sv.health.SlowToConnect() || hasWaited || s.hasLessTime(ctx) {
		return s.sendBeside(ctx, c, callEnd, cmp.Or(callerEnd, callEnd))
	}
	return s.finish(ctx, c, func() error {
		return batch.Catch(func() error { return s.carry(deadlineContext{ctx, callEnd}, sv, members) })
	})
}

// calls are those of one round trip.
type calls struct {
	sv      *Server
	members []*Call
	place   batch.Place[*Call] // of one that goes alone
	begun   time.Time
}

// sendBeside makes the calls in a goroutine, which is abandoned after the timeout: it holds a
// connection of the client's pool until the read timeout, so that there are at most as many of them
// as the pool has connections.
func (s *Store) sendBeside(ctx context.Context, c calls, callEnd, callerEnd *sharedTimer) error {
	connEnd := callEnd
	if c.sv.health.SlowToConnect() { // a new connection may take longer
		connEnd = s.farDeadlines.at(c.begun)
	}
	call := deadlineContext{ctx, connEnd}
	asked := batch.Go(func() error { return s.carry(call, c.sv, c.members) }, func(err error) {
		if err == nil {
			c.sv.health.Answered(c.begun, c.members[0].wrote())
		}
		s.freeAll(c.members, err)
	})
	end := func() error {
		return s.finish(ctx, c, func() error { return asked.Take(context.DeadlineExceeded) })
	}
	select {
	case <-asked.Done():
	case <-callerEnd.done:
	case <-ctx.Done():
	}
	if isClosed(asked.Done()) || callerEnd == callEnd && isClosed(callerEnd.done) {
		return end()
	}
	go func() { // waits on without the caller, to record how the server does
		select {
		case <-asked.Done():
		case <-callEnd.done:
		}
		s.abandoned(c.members[0], end())
	}()
	return cmp.Or(ctx.Err(), s.timeoutError())
}

// finish waits until the calls have ended, records how, and has another begin. If wait does not return,
// a hook of the client has ended this goroutine, and the replies are lost.
func (s *Store) finish(ctx context.Context, c calls, wait func() error) error {
	returned := false
	defer func() {
		c.place.Release()
		if !returned {
			s.freeAll(c.members, &batch.HookError{})
		}
	}()
	err := wait()
	switch {
	case err == nil:
		if s.servers.cluster != nil {
			s.servers.topologyKnown.Store(true)
		}
		c.sv.health.Answered(c.begun, c.members[0].wrote())
		if len(c.members) > 1 {
			s.failEach(ctx, c)
		}
	case !again(err):
		err = s.failed(ctx, c.sv, c.members[0], err, c.begun)
		s.freeAll(c.members, err) // and an abandoned call may still write to them
	}
	returned = true
	return err
}

// failEach records the members that have an error of their own. That of a part is one failure of
// the server, and not one for each of its members.
func (s *Store) failEach(ctx context.Context, c calls) {
	var known map[*partError]error
	for _, m := range c.members {
		if m.err == nil || errors.Is(m.err, batch.ErrRetryAlone) {
			continue
		}
		var p *partError // it escapes: not declared for those without an error
		switch {
		case !errors.As(m.err, &p):
			m.err = s.failed(ctx, c.sv, m, m.err, c.begun)
		case known[p] != nil:
			m.err = known[p]
		default:
			m.err = s.failed(ctx, c.sv, m, p.error, c.begun)
			if known == nil {
				known = make(map[*partError]error)
			}
			known[p] = m.err
		}
		s.freeAbandoned(m, m.err)
	}
}

// freeAll frees what is held for members that all got an error, or whose reply comes too late.
func (s *Store) freeAll(members []*Call, err error) {
	for _, m := range members {
		of := err
		if of == nil { // else an abandoned call may still write to m
			of = m.err
		}
		s.freeAbandoned(m, of)
	}
}
