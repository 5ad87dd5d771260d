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

// The bounds of Ban and Block, and of the number of levels.
const (
	minBan    = time.Millisecond
	maxBan    = algorithm.MaxBan * time.Microsecond
	maxLevels = 100
)

// Ban lets a denial begin a ban of the key: until the ban ends, every request with the key is
// denied, even if the limits would admit it. The first ban lasts for the first of the given
// durations. Each further ban lasts for the next duration in the list, or for the last one when
// there is no next. If a ban has ended, and no further ban has begun for as long as that ban
// lasted, the next ban of the key is a first one again. A ban lasts at least until the limits would
// admit the denied request, but never longer than a year. So a client that comes back after its
// RetryAfter is not banned again.
//
//	core.New(rdb, "login", core.SlidingWindowLog(core.PerHour(5)), core.FailClosed(), core.Ban(time.Hour, 24*time.Hour))
//
// During a ban everything is denied, even a cost of 0, and nothing changes: a request during a ban
// does not prolong it. What was admitted before the ban can still be settled, released or canceled.
// [Limiter.Reset] keeps a ban, and [Limiter.Unblock] ends it. If Redis refuses to write a ban, the
// request is denied without one.
//
// Only a denial because of charged units begins a ban. No ban begins if the request is denied only
// because of held units, because of [InFlight], or because its cost is above the capacity. Callers
// that wait, in [Limiter.Wait] and similar methods, never begin a ban. Neither do [Limiter.Peek],
// [Limiter.AllowUpTo] and a middleware with the option DryRun. During a ban, Wait waits for the end
// of the ban, Peek and AllowUpTo report a denial, and a middleware with DryRun serves the request all
// the same.
//
// Anyone who can send another client's key can get that client banned. So ban only keys that a
// sender cannot choose, such as its address, or its address together with the user name. Never ban
// the user name alone.
//
// There can be up to 100 durations. They are from a millisecond to a year, and none may be shorter
// than the one before it. Without durations, only [Limiter.Block] and [Limiter.BlockAtLeast] ban. All
// processes must have the option. A process notices the ban of another process when it asks Redis
// next: with a [Lease] or the [DenyCache], this is within the duration of the lease, or a second.
//
// While Redis does not answer, its bans cannot be looked up. [DenyCache] still repeats a denial for up
// to a second. After that, [FailOpen] admits banned keys, too. With [FailLocal], each process then
// denies only the keys that it has banned itself, by its denials during outages or by Block.
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

var errNoBan = errors.New("no key can be blocked without the option Ban: give it to all processes; Ban() bans nobody by itself")

// Block bans key for the duration d from now, in all processes. d is from a millisecond to a year. If the key
// is banned already, its ban is replaced, so that it becomes longer or shorter. Block does not change the
// durations of later bans that denials begin. Block returns an error if d is not allowed, or if the Limiter
// does not have the option Ban. Other errors are the same as for [Limiter.Reset]. While Redis does not answer,
// Block returns [ErrUnavailable]; with [FailLocal], this process alone then bans the key.
func (l *Limiter) Block(ctx context.Context, key string, d time.Duration) error {
	return l.block(ctx, key, d, false)
}

// BlockAtLeast is like [Limiter.Block], but never makes a ban shorter: a ban that would end later
// stays as it is. So the order of several calls does not matter. Use it for durations that others
// ask for, such as a Retry-After header.
func (l *Limiter) BlockAtLeast(ctx context.Context, key string, d time.Duration) error {
	return l.block(ctx, key, d, true)
}

// Unblock ends the ban of key. The next ban by [Ban] is a first one again. Errors are the same as for [Limiter.Block].
func (l *Limiter) Unblock(ctx context.Context, key string) error {
	return l.setBan(ctx, key, 0, false)
}

func (l *Limiter) block(ctx context.Context, key string, d time.Duration, atLeast bool) error {
	if !validBan(d) {
		return fmt.Errorf("redislimit: limiter %q: Block(%v): allowed is %v to %v", l.family.name, d, minBan, maxBan)
	}
	return l.setBan(ctx, key, d, atLeast)
}

// setBan blocks key for d, or unblocks the key if d is 0. It notifies the observers, also if Redis fails.
func (l *Limiter) setBan(ctx context.Context, key string, d time.Duration, atLeast bool) error {
	if l.family.bans == nil {
		return fmt.Errorf("redislimit: limiter %q: %w", l.family.name, errNoBan)
	}
	if err := checkCall(ctx, key, 0); err != nil {
		return err // nothing was sent, so there is no event
	}
	err := l.change(ctx, key, func(b backend, set *limits.Set) error { return b.Block(ctx, set, key, d.Microseconds(), atLeast) })
	l.family.events.emitContained(ctx, key, Event{Kind: EventBan, Took: d, Err: err})
	return err
}
