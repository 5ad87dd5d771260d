package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/diagnose"
	"github.com/redislimit/redislimit/internal/health"
)

// A prober lets package health find out whether a server can decide.
type prober struct{ node *node }

// Probe makes the server decide once, on keys that nothing else uses, by the limits of any open Store. If no
// Store is open, it does nothing. The time that it takes to find the server of a key counts as part of the
// probe.
func (p prober) Probe(ctx context.Context, lastError error) (health.Outcome, error) {
	st := p.node.servers.anOpenStore()
	if st == nil {
		return health.NotProbed, nil
	}
	k, began := p.node.probeKey(), time.Now()
	err := besideUntil(ctx, func() error {
		client, moved := p.node.servers.probeClient(ctx, p.node, st, k)
		if moved {
			return errMoved
		}
		if err := p.dial(ctx, lastError); err != nil {
			return err
		}
		return st.probe(ctx, client, k)
	})
	switch {
	case err == nil, errors.Is(err, errMoved) && p.node == p.node.servers.whole: // the topology is known now: decisions go to the nodes
		return health.Answered, nil
	case errors.Is(err, errMoved):
		return health.Replaced, nil
	case errors.Is(err, redis.ErrClosed):
		return health.NotProbed, err
	}
	deadline, _ := ctx.Deadline()
	return st.outcome(st.explain(context.WithoutCancel(ctx), err), deadline.Sub(began), began)
}

// besideUntil calls f in a goroutine of its own, and waits for it until the deadline of ctx, which must have one,
// and for dialGrace after it. f continues after that, so its results other than its error may be read only if the
// error is nil. f needs the goroutine because a hook of the client or the user's Dialer may panic, end the goroutine
// or ignore ctx, while package health waits.
func besideUntil(ctx context.Context, f func() error) error {
	deadline, _ := ctx.Deadline()
	until, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(dialGrace))
	defer cancel()
	return batch.Beside(until, f, nil)
}

// dialGrace is the time that a Dialer or a client gets to return after its context has ended. Its error says more
// than the error of the context: for example, the address that did not answer.
const dialGrace = 20 * time.Millisecond

// errMoved is the error of a probe that finds the keys of its server on another one.
var errMoved = errors.New("another server has the keys")

// dial tests the connection to the server outside the client's pool. It does so if the last error
// was a failure to connect, or a timeout while the pool has no idle connection. The pool would be
// too slow for this: after as many failures as it may have connections, it tries to connect only once
// per second, and a host name that does not resolve occupies a place in the pool for seconds.
//
// dial makes a connection and closes it. After a timeout, if the client does not end calls at their
// deadlines, dial also sends a PING. If the PING is not answered, the probe ends here: otherwise, each
// probe would keep a connection of the pool for seconds, until none is left.
func (p prober) dial(ctx context.Context, lastError error) error {
	client := p.node.client.Value()
	timedOut := diagnose.IsTimeout(lastError)
	if client == nil || !diagnose.IsDial(lastError) && (!timedOut || client.PoolStats().IdleConns > 0) {
		return nil
	}
	conn, err := client.Options().Dialer(ctx, client.Options().Network, client.Options().Addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if !timedOut || p.node.servers.ctxDeadlines {
		return nil
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	_, _ = io.WriteString(conn, "PING\r\n")
	if _, err = conn.Read(make([]byte, 1)); diagnose.IsTimeout(err) { // anything else is an answer
		return err
	}
	return nil
}

const (
	// failoverAddr is the address that go-redis gives for the master behind Sentinel.
	failoverAddr = "FailoverClient"
	// addressTime is how long finding the address of that master may take.
	addressTime = 100 * time.Millisecond
)

// Address returns the server's address. For the master behind Sentinel, this is the address in the last
// error, or else the address of a new connection or of its error. If none of them has an address, Address
// returns the name that go-redis gives to this master.
func (p prober) Address(ctx context.Context, lastError error) string {
	client := p.node.client.Value()
	if p.node.addr != failoverAddr || client == nil {
		return p.node.addr
	}
	var op *net.OpError
	if !errors.As(lastError, &op) || op.Addr == nil {
		ctx, cancel := context.WithTimeout(ctx, addressTime)
		defer cancel()
		addr := ""
		err := besideUntil(ctx, func() error {
			conn, err := client.Options().Dialer(ctx, client.Options().Network, p.node.addr)
			if err == nil {
				addr = conn.RemoteAddr().String()
				_ = conn.Close()
			}
			return err
		})
		if err == nil {
			return addr
		}
		if !errors.As(err, &op) || op.Addr == nil {
			return p.node.addr
		}
	}
	return op.Addr.String()
}
