package redisstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redislimit/redislimit/internal/batch"
)

// A roundTrip is a group of calls that are sent together.
type roundTrip struct {
	node  *node
	calls []*Call
	place batch.Place[*Call] // for a call that its batcher lets go alone: its place among the calls in flight; otherwise zero
	began time.Time
	end   *sharedTimer // ends when the server's time to answer is over
}

// send sends calls to a server in one round trip and records how that ended. It returns the error
// of the round trip. If that is nil, the field err of each call has the error of the call alone,
// which may be nil. Decisions and all other calls that change a user's key are sent by this method.
// Probes and checks are not: they use besideUntil, Store.bounded or Store.process.
//
// The server must answer within the timeout, which begins now. The caller waits until callerEnd. If
// the caller has already waited in this process before it called send, callerEnd comes before the
// end of the timeout. A nil callerEnd means that the caller waits for the whole round trip, as
// batches and shared round trips in the background do. A caller may have to leave before the end of
// the timeout, because of callerEnd, or because ctx has ended or has an earlier deadline. It then
// leaves the round trip to a goroutine, which records whether the server answers in time.
//
//	client        new connections  caller         sent by             caller waits for
//	ends calls    in time          stays          its own goroutine   the reply or the end of the round trip
//	ends calls    in time          leaves early   another goroutine   the reply, callerEnd or the end of ctx
//	ends calls    may be late      stays or not   another goroutine   the same
//	does not      either           stays or not   another goroutine   the same
//
// "Ends calls" means that the client gives up at the deadline of the context that it gets: see
// endsWithContext. "May be late" is [health.Monitor.SlowToConnect]: the client then gets more time
// than the timeout, so that the connection is made for the next caller.
//
// The first row is the usual case. The caller sends the call itself, because a lone call took 39%
// longer in another goroutine. The caller then waits for the reply even if ctx is canceled before the
// reply comes; if the call fails after that, package core returns the error of ctx.
func (s *Store) send(ctx context.Context, n *node, calls []*Call, place batch.Place[*Call], callerEnd *sharedTimer) error {
	now := time.Now()
	trip := roundTrip{n, calls, place, now, s.deadlines.at(now)}
	leavesEarly := callerEnd.endsBefore(trip.end) || s.hasLessTime(ctx)
	if !s.servers.ctxDeadlines || n.health.SlowToConnect() || leavesEarly {
		return s.sendAsync(ctx, trip, callerEnd)
	}
	return s.finish(ctx, trip, func() error {
		return batch.Catch(func() error { return s.execute(deadlineContext{ctx, trip.end}, n, calls) })
	})
}

// sendAsync sends a round trip in a goroutine of its own, and waits as long as the caller can.
//
// Until trip.end, either the caller waits for the reply or, after the caller has left, another
// goroutine does. After trip.end, nobody waits for the goroutine that sends, which continues until the
// client gives up. go-redis lets it wait for a connection only until connectEnd. If the goroutine is
// still left over after that, it has a connection of the client's pool, so no more such goroutines are
// left over than the pool has connections.
//
// Units and slots that the calls hold are freed if no caller gets the reply:
//
//	the round trip fails, or ends too late             by finish
//	the round trip succeeds, but the call fails        by failEach
//	the round trip succeeds after its caller has left  by callerLeft
//	the round trip succeeds after trip.end             by endedLate
//
// In the last case, finish has already freed the slots. Freeing them twice is harmless: both times,
// the slots are named by the id of their hold, which no other hold has. Calls that were not made
// (see notDone) hold nothing.
func (s *Store) sendAsync(ctx context.Context, trip roundTrip, callerEnd *sharedTimer) error {
	connectEnd := trip.end
	if trip.node.health.SlowToConnect() {
		connectEnd = s.connectDeadlines.at(trip.began)
	}
	sending := batch.Go(func() error {
		return s.execute(deadlineContext{ctx, connectEnd}, trip.node, trip.calls)
	}, func(err error) { s.endedLate(trip, err) })
	finish := func() error {
		return s.finish(ctx, trip, func() error { return sending.Take(context.DeadlineExceeded) })
	}
	select {
	case <-sending.Done():
	case <-cmp.Or(callerEnd, trip.end).done:
	case <-ctx.Done():
	}
	if isClosed(sending.Done()) || isClosed(trip.end.done) {
		return finish()
	}
	s.delayClose()
	go func() {
		defer s.allowClose() // even if an observer ends the goroutine
		select {
		case <-sending.Done():
		case <-trip.end.done:
		}
		// Only a lone call holds anything here: the ctx of a batch never ends, and calls in the
		// background begin no hold.
		s.callerLeft(trip.calls[0], finish())
	}()
	return cmp.Or(ctx.Err(), s.timeoutError())
}

// endedLate records the outcome of a round trip that finish has already recorded as a timeout, and frees
// what its calls hold. Only an answer tells the health monitor anything new.
func (s *Store) endedLate(trip roundTrip, err error) {
	if err == nil {
		trip.node.health.Answered(trip.began, trip.calls[0].wrote())
	}
	s.freeAllUnclaimed(trip.calls, err)
}

// finish calls wait, which waits for the round trip and returns its error. It records how the round trip
// ended, gives back the place of a lone call, so that the next batch may start, and frees what is held by
// calls that failed. If the error is one of notDone, nothing was held, and finish records nothing. (If the
// server has refused the script of a batch, the error is nil, and each of the calls has ErrRetryAlone. The
// round trip then counts as answered.) If wait does not return, a hook of the client has ended this
// goroutine, and the replies are lost.
func (s *Store) finish(ctx context.Context, trip roundTrip, wait func() error) error {
	returned := false
	defer func() {
		trip.place.Release()
		if !returned {
			s.freeAllUnclaimed(trip.calls, &batch.HookError{})
		}
	}()
	err := wait()
	switch {
	case err == nil:
		if s.servers.cluster != nil {
			s.servers.topologyKnown.Store(true) // go-redis needed it to find the server
		}
		// Only the first call is looked at. If only others of the calls have written, a later round trip
		// will show that the server accepts writes.
		trip.node.health.Answered(trip.began, trip.calls[0].wrote())
		if len(trip.calls) > 1 {
			s.failEach(ctx, trip)
		}
	case !notDone(err):
		err = s.failed(ctx, trip.node, trip.calls[0], err, trip.began)
		s.freeAllUnclaimed(trip.calls, err)
	}
	returned = true
	return err
}

// failEach records the failures of calls that have errors of their own, and frees what these calls hold. If
// one of several scripts has failed, all calls in the script have the same error. This counts as one failure
// of the server, not as one for each call.
func (s *Store) failEach(ctx context.Context, trip roundTrip) {
	var known map[*partError]error
	for _, d := range trip.calls {
		if d.err == nil || errors.Is(d.err, batch.ErrRetryAlone) {
			continue
		}
		var part *partError // declared here because it escapes: a call without an error allocates nothing
		switch {
		case !errors.As(d.err, &part):
			d.err = s.failed(ctx, trip.node, d, d.err, trip.began)
		case known[part] != nil:
			d.err = known[part]
		default:
			d.err = s.failed(ctx, trip.node, d, part.error, trip.began)
			if known == nil {
				known = make(map[*partError]error)
			}
			known[part] = d.err
		}
		s.freeUnclaimed(d, d.err)
	}
}

// freeAllUnclaimed frees what the calls of a round trip hold if nobody takes their replies. err is
// the error of the round trip. The errors of the calls may be read only if err is nil: otherwise,
// the goroutine that sends may still write to the calls.
func (s *Store) freeAllUnclaimed(calls []*Call, err error) {
	for _, d := range calls {
		if err == nil {
			s.freeUnclaimed(d, d.err)
		} else {
			s.freeUnclaimed(d, err)
		}
	}
}
