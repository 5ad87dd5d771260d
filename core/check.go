package core

import (
	"context"
	"errors"
	"fmt"
)

// Check asks Redis whether it can decide. If it can, Check looks at the settings of the servers and of
// the client, and at the permissions of the Redis user. If Redis refuses a command, Check finds out
// which permissions are missing. Check takes several steps, and waits for Redis at most five seconds in
// each, or ten times the [Timeout] if that is longer. Call Check when a service starts, and log the
// error. It changes no count.
//
// An error that is [ErrUnavailable] says why Redis cannot decide, and what to do about it. Possible
// causes are the address, TLS, the password, the database, the version of Redis, a command that the Redis
// user is not allowed to run, a server that is a replica, and a client for a single server that is
// connected to a node of a Cluster. If ctx ends before this is known, the error is the error of ctx. Any
// other error is advice, with one line for each setting of Redis or of the client that slows decisions
// down, or can lose counts while Redis runs. Check says nothing about persistence: without it, a restart
// of Redis forgets all counts. Settings that the Redis user is not allowed to read (by INFO and CONFIG
// GET) are not checked. A Limiter of [NewMemory] has nothing to check.
func (l *Limiter) Check(ctx context.Context) error {
	if l.set.Store == nil {
		return ctx.Err()
	}
	advice, cannot := l.set.Store.Check(ctx)
	if cannot != nil {
		return l.family.failure(ctx, cannot)
	}
	lines := make([]error, len(advice))
	for i, line := range advice {
		lines[i] = fmt.Errorf("redislimit: limiter %q: %s", l.family.name, line) //nolint:err113 // a person reads it
	}
	return errors.Join(lines...)
}
