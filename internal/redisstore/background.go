package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Background is a call that a limiter makes on its own, and not for a caller that decides or ends
// something: a renewal, the settlement of a lease, or a cleanup for a caller that has left. It is carried
// out at most once. Many Background calls share a round trip if they may. A Background is not sent while
// its server is down.
type Background struct {
	Limits *Limits
	Key    string
	// Begin is called when the call is about to be sent, and returns the operation to send. If End is not
	// nil, the operation must have Handles. Begin reports false if the call need not be sent any more.
	Begin func() (algorithm.Operation, bool)
	// End, if it is not nil, is called after a Begin that reported true. handles are the Handles of the
	// operation, into which the reply was written.
	//
	//	err is nil, handles are not   the call was carried out. After a renewal, a limit whose hold has ended
	//	                              keeps its handle, and a limit whose slots are lost has the zero Handle
	//	both are nil                  the call was not carried out, and may be tried again
	//	err is not nil                the call may have been carried out. The handles must not be read,
	//	                              because the reply may still be written into them
	End func(handles []algorithm.Handle, err error)
}

// SendAll sends all calls whose servers are up, or come up while SendAll waits for them (see awaitUp). It
// waits for the replies, but no longer than ctx lasts: a call whose reply has not come by then ends with
// the error of ctx. For calls that are not sent because their server is down, neither Begin nor End is
// called.
func (s *Store) SendAll(ctx context.Context, all []Background) {
	byServer := make(map[*node][]Background)
	for _, c := range all {
		n := s.servers.of(ctx, s, c.Key)
		byServer[n] = append(byServer[n], c)
	}
	var servers sync.WaitGroup
	for n, calls := range byServer {
		servers.Go(func() { s.sendBackground(ctx, n, calls) })
	}
	servers.Wait()
}

// maxScripts is how many scripts one round trip of background calls may have at most.
const maxScripts = 16

// sendBackground sends calls to one server: in batches or, if each call must be sent alone, up to
// maxInFlight at a time.
func (s *Store) sendBackground(ctx context.Context, n *node, calls []Background) {
	if s.batcher(n) != nil {
		s.sendGrowingBatches(ctx, n, calls)
		return
	}
	var inFlight sync.WaitGroup
	places := make(chan struct{}, maxInFlight)
	for i := range calls {
		places <- struct{}{}
		if !s.awaitUp(ctx, n, calls[i:]) {
			break
		}
		inFlight.Go(func() {
			defer func() { <-places }()
			s.sendChunk(ctx, n, calls[i:i+1])
		})
		if s.OnlyCallers {
			inFlight.Wait()
		}
	}
	inFlight.Wait()
}

// sendGrowingBatches sends calls in batches, one after the other. It does not send several batches
// at a time, because this would need new connections, which take too long to make if the server is
// distant. Instead, each batch is twice as large as the previous one, up to maxScripts full scripts. If
// a batch took longer than the fastest one by at least 1/16 of the timeout, the next batch is half as
// large, but at least one full script.
func (s *Store) sendGrowingBatches(ctx context.Context, n *node, calls []Background) {
	shortest := s.Timeout
	for size := s.perScript; len(calls) > 0 && s.awaitUp(ctx, n, calls); {
		chunk, began := calls[:min(size, len(calls))], time.Now()
		s.sendChunk(ctx, n, chunk)
		calls = calls[len(chunk):]
		took := time.Since(began)
		shortest = min(shortest, took)
		if took < shortest+s.Timeout/16 {
			size = min(2*size, s.perScript*maxScripts)
		} else {
			size = max(size/2, s.perScript)
		}
	}
}

// awaitUp waits for the server on behalf of calls, as node.awaitUp does, but no longer than the timeout. It
// reports whether the server is up. calls must not be empty.
func (s *Store) awaitUp(ctx context.Context, n *node, calls []Background) bool {
	return n.awaitUp(ctx, calls[0].Key, s.deadlines.timer().done)
}

// sendChunk calls the Begin of each call, sends the calls whose Begin reported true in one round trip,
// and then calls the End of each call that it has sent. It calls End even if a hook of the client ends the
// goroutine, because whoever ends a hold waits for the End of a renewal of the hold.
func (s *Store) sendChunk(ctx context.Context, n *node, chunk []Background) {
	var calls []*Call
	var sent []Background
	for _, c := range chunk {
		if call, ok := c.Begin(); ok {
			calls = append(calls, NewCall(c.Limits, c.Key, call))
			sent = append(sent, c)
		}
	}
	errs := make([]error, len(calls))
	for i := range errs {
		errs[i] = &batch.HookError{} // stays if sendCalls does not return
	}
	defer func() {
		for i, err := range errs {
			switch end := sent[i].End; {
			case end == nil:
			case err != nil && !replyLost(err): // nothing was renewed, and the call may be tried again
				end(nil, nil)
			default:
				end(calls[i].Handles, err)
			}
		}
	}()
	s.sendCalls(ctx, n, calls, errs)
}

// sendCalls sends calls in one round trip. Calls that must be sent again, alone, are then sent one after
// the other. Whenever a call is sent alone, it first waits for its server: see doWhenUp. sendCalls writes the
// error of each call into errs. A call that is sent alone has a goroutine of its own: if a hook of the client
// ends the goroutine, the other calls are sent nevertheless.
func (s *Store) sendCalls(ctx context.Context, n *node, calls []*Call, errs []error) {
	alone := len(calls) < 2
	if !alone {
		err := s.send(ctx, n, calls, batch.Place[*Call]{}, nil)
		if alone = errors.Is(err, batch.ErrRetryAlone); err != nil && !alone {
			for i := range errs {
				errs[i] = err // d.err may not be read: the goroutine that sends may still write to the calls
			}
			return
		}
	}
	for i, d := range calls {
		if alone || errors.Is(d.err, batch.ErrRetryAlone) {
			errs[i] = batch.Beside(context.WithoutCancel(ctx), func() error { return s.doWhenUp(ctx, d, s.deadlines.timer()) }, nil)
		} else {
			errs[i] = d.err
		}
	}
}
