package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// The bounds of Ban and Block, and of how many levels there are.
const (
	minBan    = time.Millisecond
	maxBan    = algorithm.MaxBan * time.Microsecond
	maxLevels = 100
)

// Ban has a denial ban its key: for the first of these times, whatever the limits say meanwhile;
// denied again after that, for the next; the last one repeats. A ban ends no sooner than the same
// request would be admitted, so that who comes back at its RetryAfter is not banned again. The
// first time is next again once the key, after a ban, was not denied for as long as that ban
// lasted.
//
//	core.New(rdb, "login", core.SlidingWindowLog(core.PerHour(5)), core.FailClosed(), core.Ban(time.Hour, 24*time.Hour))
//
// During a ban everything is denied, a cost of 0, too, and changes nothing: the ban gets no longer.
// Ending a [Permit] or a [Reservation] works all the same. [Limiter.Reset] keeps a ban, and
// [Limiter.Unblock] ends it. If Redis refuses to write a ban, the denial stands.
//
// Only a denial by what is charged bans: not one by units that are held for a moment, or by
// [InFlight], nor of a cost above the capacity. Who waits ([Limiter.Wait] and its kin) or only
// looks ([Limiter.Peek], a middleware with DryRun) is denied during a ban, and bans nobody.
//
// Whoever can send another's key can have him banned. So ban what its sender cannot choose, such as
// his address, or the address and the user's name together; never the name of a user alone.
//
// The times are from a millisecond to a year, none shorter than the one before. Without any, only
// [Limiter.Block] bans. All processes must have the option; one with a [Lease] or the deny cache
// sees the ban of another process within the time of the lease, or a second. With [FailLocal] each
// process bans by itself while Redis is away.
func Ban(levels ...time.Duration) Option {
	bans, allow := make(algorithm.Bans, len(levels)), ""
	for i, d := range levels {
		bans[i] = d.Microseconds()
	}
	if !slices.IsSorted(levels) || slices.ContainsFunc(levels, func(d time.Duration) bool { return !validBan(d) }) {
		allow = fmt.Sprintf("allowed is %v to %v, and none shorter than the one before", minBan, maxBan)
	}
	if len(levels) > maxLevels {
		allow = fmt.Sprintf("allowed are %d levels", maxLevels)
	}
	return setting{"bans", fmt.Sprintf("Ban(%v)", levels), allow == "", allow, func(c *config) { c.bans = bans }}
}

func validBan(d time.Duration) bool { return d >= minBan && d <= maxBan }

var errNoBan = errors.New("without the option Ban no key can be blocked: give it to all processes, as Ban() for this alone")

// Block bans key by hand, in all processes, for d from now, from a millisecond to a year: a ban
// that it has is made longer or shorter. Levels stay as they are. The Limiter must have the option
// [Ban]. Errors are else those of [Limiter.Reset]; while Redis does not answer, only this process
// blocks.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	return l.block(ctx, key, d, false)
}

// BlockAtLeast is [Limiter.Block], but makes no ban shorter: of several the one that ends last
// counts, whichever process is the first. It is for what others ask for, such as a Retry-After.
func (l *Limiter) BlockAtLeast(ctx context.Context, key string, d time.Duration) error {
	return l.block(ctx, key, d, true)
}

// Unblock ends the ban of key, and forgets its levels. Errors are those of [Limiter.Block].
func (l *Limiter) Unblock(ctx context.Context, key string) error {
	return l.setBan(ctx, key, 0, false)
}

func (l *Limiter) block(ctx context.Context, key string, d time.Duration, atLeast bool) error {
	if !validBan(d) {
		return fmt.Errorf("redislimit: limiter %q: Block(%v): allowed is %v to %v", l.family.name, d, minBan, maxBan)
	}
	return l.setBan(ctx, key, d, atLeast)
}

// setBan blocks key for d, or unblocks it if that is 0.
func (l *Limiter) setBan(ctx context.Context, key string, d time.Duration, atLeast bool) error {
	if l.family.bans == nil {
		return fmt.Errorf("redislimit: limiter %q: %w", l.family.name, errNoBan)
	}
	if err := checkCall(ctx, key, 0); err != nil {
		return err // nothing has happened
	}
	err := l.change(ctx, key, func(b backend, set *limits.Set) error { return b.Block(ctx, set, key, d.Microseconds(), atLeast) })
	l.family.events.emitContained(ctx, key, Event{Kind: EventBan, Took: d, Err: err})
	return err
}
