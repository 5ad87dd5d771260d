package core

import (
	"context"
	"errors"
	"fmt"
)

// Check asks Redis once whether it can decide, and then for rights and settings, for up to five
// seconds each: call it when a service starts, and log the error. It changes no count.
//
// An error that is [ErrUnavailable] says why Redis cannot decide, and what to do: the address, TLS,
// the password, the database, a node of a Cluster, a replica, the version, or a command that the
// Redis user may not run. Any other error is advice, a line each: a setting of Redis or of the
// client by which limits are forgotten, or decisions are slower than they need be. What the Redis
// user may not ask (INFO, CONFIG GET) is not looked at. A Limiter of [NewMemory] has nothing to
// check.
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
