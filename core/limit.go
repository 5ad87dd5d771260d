package core

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/calendar"
	"github.com/redislimit/redislimit/internal/key"
)

// A Limit is an algorithm with its rate, which a [Limiter] applies to each key. [TokenBucket],
// [FixedWindow] and the other constructors make Limits, and a Limit is itself an [Option] of [New].
// New reports a wrong rate or option. [Unlimited] stands in place of a Limit for keys that have no
// limit.
//
// A Limit with a count of 0 denies every request, except those that cost 0. It is meant for numbers
// that come from data, such as the plan of a suspended customer: [Limiter.With] and [ParseLimit]
// accept it, and New reports it as a mistake. Its denials have a RetryAfter of [Never] and begin no
// [Ban]. A Limiter with such a Limit decides without Redis, unless it has the option Ban: it then
// asks Redis whether the key is banned. If Redis does not answer, the Limit still denies, with
// every outage policy. If a Limiter has a Limit of 0, its other Limits do not decide, and nothing
// is charged to them. The [Result] describes the Limit of 0 alone, except during a ban: see
// [Result.All].
type Limit struct {
	kind    *algorithm.Kind
	rate    Rate
	burst   int64 // as given to Burst, or 0 for the default; for InFlight the number of slots
	aligned bool
	zone    string        // as given to In; "" means UTC for PerWeek and PerMonth
	slotTTL time.Duration // as given to SlotTTL, or 0 for the default
	name    string        // as given to LimitName, or "" for the default
	mistake string        // describes the first wrong option
}

// A BucketOption adjusts a [TokenBucket], a [GCRA] or a [LeakyBucket]: [Burst] or [LimitName].
type BucketOption interface {
	limitOption
	bucket()
}

// A WindowOption adjusts a [FixedWindow]: [Aligned], [In] or [LimitName].
type WindowOption interface {
	limitOption
	window()
}

// An InFlightOption adjusts an [InFlight]: [SlotTTL] or [LimitName].
type InFlightOption interface {
	limitOption
	inFlight()
}

// A LimitOption adjusts a [Limit] of any algorithm: [LimitName].
type LimitOption interface {
	BucketOption
	WindowOption
	InFlightOption
}

type limitOption interface{ set(l *Limit) }

type burstOption int64

// Burst sets the capacity of a bucket: how many units can be used at once after a long enough time in
// which none were used. It is from 1 to 1e9, and that many units must drain or refill within 100
// years. The default is the rate's count. For a [LeakyBucket], the default is the number of units
// that drain in a second, but at least 1.
//
// If the rate's count is 0, the capacity is 0 whatever the burst is, and a burst of 0 is allowed.
func Burst(n int64) BucketOption { return burstOption(n) }

func (burstOption) bucket() {}

func (n burstOption) set(l *Limit) {
	switch {
	case n == 0 && l.isZero(): // data with a count of 0 may also contain a burst of 0
	case n < 1 || n > maxCount:
		l.fail(fmt.Sprintf("Burst(%d): allowed is 1 to %d", n, maxCount))
	case l.burst != 0:
		l.fail(fmt.Sprintf("Burst(%d) and Burst(%d): give it once", l.burst, n))
	}
	l.burst = int64(n)
}

type alignedOption struct{}

// Aligned makes the windows of a [FixedWindow] start at multiples of its period since the Unix
// epoch, at the same instant for every key. Without Aligned, a window of a key starts with the
// first request that is charged, unless the windows follow a calendar; see [In].
func Aligned() WindowOption { return alignedOption{} }

func (alignedOption) window() {}

func (alignedOption) set(l *Limit) {
	if l.aligned {
		l.fail("Aligned() and Aligned(): give it once")
	}
	l.aligned = true
}

type zoneOption string

// In makes the windows of a [FixedWindow] follow the calendar of a time zone. They begin at local
// midnight with [PerDay], on Monday with [PerWeek], and on the first day with [PerMonth]. The zone
// is an IANA name, such as "Europe/Berlin". Without In, PerWeek and PerMonth use UTC. Windows of a
// calendar begin at the same instant for every key, so [Aligned] changes nothing about them.
//
// A window begins at the first instant of its local day, so a day can have 23 or 25 hours. The clock
// of Redis decides which window a request is in. Redis can decide only if its clock and the clock of
// this process are in the same window, or in neighboring windows; otherwise the outage policy
// decides. Time zones come from the system, or from the program if it imports time/tzdata.
func In(zone string) WindowOption { return zoneOption(zone) }

func (zoneOption) window() {}

func (z zoneOption) set(l *Limit) {
	zone := string(z)
	if l.zone != "" {
		l.fail(fmt.Sprintf("In(%q) and In(%.80q): give it once", l.zone, zone))
	}
	if _, err := calendar.In(zone, calendar.Day); err != nil {
		l.fail(fmt.Sprintf("In(%.80q): want the IANA name of a time zone that this machine knows, or the program by time/tzdata, "+
			"such as \"Europe/Berlin\": %v", zone, err))
	}
	if l.rate.unit == 0 && l.rate.period != day {
		l.fail(fmt.Sprintf("In(%.80q): allowed with PerDay, PerWeek and PerMonth: a calendar has no windows of %v", zone, l.rate.period))
	}
	l.zone = zone
}

// canonical returns l in a form that is the same for all Limits with the same meaning, so that they
// are equal. It is called after the options have been applied.
func (l Limit) canonical() Limit {
	if l.calendar() > 0 {
		l.aligned = false // calendar windows are always aligned
	}
	if l.rate.unit > 0 && l.zone == "UTC" {
		l.zone = ""
	}
	return l
}

// calendar returns the unit of the calendar that the windows of l follow, or 0 if they follow none.
func (l Limit) calendar() calendar.Unit {
	switch {
	case l.rate.unit > 0:
		return l.rate.unit
	case l.zone != "":
		return calendar.Day
	}
	return 0
}

// The bounds of Hold and SlotTTL.
const (
	minHold = 10 * time.Millisecond
	maxHold = time.Hour
)

type slotTTLOption time.Duration

// SlotTTL sets how long a slot of an [InFlight] is held without being renewed, from 10 milliseconds
// to 1 hour. The default is 10 seconds. If a process dies, its slots become free after this time.
// If Redis does not answer for more than two thirds of this time, callers can lose their slots.
// Work can take longer than a SlotTTL, because the Limiter renews the slots until the work ends.
func SlotTTL(d time.Duration) InFlightOption { return slotTTLOption(d) }

func (slotTTLOption) inFlight() {}

func (d slotTTLOption) set(l *Limit) {
	switch ttl := time.Duration(d); {
	case ttl < minHold || ttl > maxHold:
		l.fail(fmt.Sprintf("SlotTTL(%v): allowed is %v to %v", ttl, minHold, maxHold))
	case l.slotTTL != 0:
		l.fail(fmt.Sprintf("SlotTTL(%v) and SlotTTL(%v): give it once", l.slotTTL, ttl))
	}
	l.slotTTL = time.Duration(d)
}

type nameOption string

// LimitName sets the name of the Limit in results and in its Redis keys: 1 to 64 letters, digits
// and "_.-". The default consists of the algorithm and the period, such as "token-1m". For [Aligned]
// windows it is a name such as "aligned-1m", for calendar windows a name such as
// "month-Europe.Berlin", and for an [InFlight] it is "inflight".
//
// A change of the count or the burst keeps what was used, whether the Limit has a name or not. (A
// [LeakyBucket] keeps the instant at which its queue will be empty.) A change of the algorithm
// starts a fresh count. (There is one exception: a TokenBucket and a GCRA that have the same
// LimitName share their count.) A change of the period starts a fresh count, too, except in a
// bucket with a name. So does a change of the kind of windows (opened by the first request,
// aligned, or of a calendar), or of the time zone of a calendar. A fresh count is independent of
// the old one: while processes with the old limit and processes with the new limit run side by
// side, all of them together can admit as much as both limits allow together. The guide has an
// example under "What identifies a count".
func LimitName(name string) LimitOption { return nameOption(name) }

func (nameOption) bucket() {}

func (nameOption) window() {}

func (nameOption) inFlight() {}

func (n nameOption) set(l *Limit) {
	switch {
	case l.name != "":
		l.fail(fmt.Sprintf("LimitName(%q) and LimitName(%.80q): give it once", l.name, string(n)))
	case !key.ValidName(string(n)):
		l.fail(fmt.Sprintf("LimitName(%.80q): allowed are 1 to %d letters, digits and \"_.-\"", string(n), key.MaxName))
	}
	l.name = string(n)
}

func newLimit(k *algorithm.Kind, r Rate) Limit { return Limit{kind: k, rate: r} }

// with returns l after applying options to it.
func with[O limitOption](l Limit, options []O) Limit {
	for _, option := range options {
		if any(option) == nil {
			l.fail("a nil option: leave it out")
		} else {
			option.set(&l)
		}
	}
	return l
}

// fail records the first mistake, which New reports.
func (l *Limit) fail(mistake string) {
	if l.mistake == "" {
		l.mistake = mistake
	}
}

// Name returns the name given by [LimitName], or else the default, such as "token-1m". The name of
// [Unlimited] is "unlimited".
func (l Limit) Name() string {
	switch {
	case l.name != "" || l.kind == nil:
		return l.name
	case l.kind == unlimited:
		return l.kind.Name
	}
	return l.formName()
}

// key returns the end of the Redis key of the Limit. A "~" separates the name from the rest,
// because no name contains one.
func (l Limit) key() string {
	switch {
	case l.name == "":
		return l.formName()
	case l.kind.Debt && !l.kind.Delays:
		return l.name + "~bucket" // for every TokenBucket and GCRA: a bucket stores the rate at which it drains
	case l.kind.Delays:
		return l.name + "~" + l.kind.Tag
	}
	return l.name + "~" + l.formName()
}

// formName returns the name that the Limit has without [LimitName]: its algorithm and period. There are
// three exceptions. For special windows, the kind of the windows replaces the algorithm. For windows of a
// calendar, the name consists of the unit and, except for UTC, the zone. For slots, it is the algorithm alone.
func (l Limit) formName() string {
	tag := l.kind.Tag
	if l.kind.Slots {
		return tag
	}
	switch unit := l.calendar(); {
	case l.zone == even:
		tag = even
	case unit > 0 && (l.zone == "" || l.zone == "UTC"):
		return unit.String()
	case unit > 0:
		return unit.String() + "-" + strings.NewReplacer("/", ".", "+", "_").Replace(l.zone)
	case l.aligned:
		tag = "aligned"
	}
	return tag + "-" + formatPeriod(l.rate.period)
}

// Algorithm returns the name of the algorithm, such as "token_bucket". For [Unlimited] it is
// "unlimited".
func (l Limit) Algorithm() string {
	if l.kind == nil {
		return ""
	}
	return l.kind.Name
}

// Rate returns the rate that the Limit was made with. [InFlight] and [Unlimited] have no rate; for
// them Rate returns the zero Rate.
func (l Limit) Rate() Rate { return l.rate }

// Capacity returns the largest number of units that can be used at once: the [Burst] of a bucket,
// the count of a window, or the slots of an [InFlight]. It is 0 if the count is 0, and
// [math.MaxInt64] for [Unlimited].
func (l Limit) Capacity() int64 {
	switch {
	case l.kind == unlimited:
		return math.MaxInt64
	case l.isZero():
		return 0
	case l.burst > 0:
		return l.burst
	case l.kind != nil && l.kind.DefaultBurst != nil:
		return l.kind.DefaultBurst(l.rate.count, l.rate.micros())
	}
	return l.rate.count
}

// WindowAt returns the start and the end of the window that contains the instant t. It works for a
// [FixedWindow] with [Aligned], [PerWeek], [PerMonth] or [In], whose windows are known beforehand and
// are the same for all keys. For any other Limit, ok is false.
//
// Use it for a page that says when a quota resets. Do not use the ResetAfter of [Limiter.Peek] for
// this: it is 0 before the first charge in a window.
//
//	res, err := lim.Peek(ctx, "user:alice")
//	...
//	_, resets, _ := quota.WindowAt(res.At)
//
// The window begins at start, and the next window begins at end. Both are in the zone given to In, or
// in UTC. The clock of Redis decides to which window a request belongs. Result.At is an instant of
// that clock; time.Now can differ from that clock by a little. If t is outside of the years 1 to
// 9999, ok is false.
func (l Limit) WindowAt(t time.Time) (start, end time.Time, ok bool) {
	if year := t.UTC().Year(); l.check() != nil || year < 1 || year > 9999 {
		return time.Time{}, time.Time{}, false
	}
	at, zone := t.UnixMicro(), time.UTC
	var from, to int64
	switch n := l.numbers(); {
	case n.Calendar != nil:
		from, to = n.Calendar.Window(at)
		zone = n.Calendar.Location
	case l.aligned:
		from = at - (at%n.Period+n.Period)%n.Period // the remainder is negative before 1970
		to = from + n.Period
	default:
		return time.Time{}, time.Time{}, false
	}
	return time.UnixMicro(from).In(zone), time.UnixMicro(to).In(zone), true
}

// numbers returns the numbers that the algorithm computes with. No algorithm can compute with a count of 0,
// so numbers returns the numbers of a count of 1 instead. They never decide anything: a limit with a count
// of 0 denies because its capacity is 0. A store gets such a limit only because it looks up bans for it.
func (l Limit) numbers() algorithm.Numbers {
	n := algorithm.Numbers{
		Count: l.rate.count, Period: l.rate.micros(), Burst: l.Capacity(), Aligned: l.aligned, Named: l.name != "",
	}
	if l.isZero() {
		n.Count, n.Burst = 1, 1
	}
	if unit := l.calendar(); unit > 0 && l.zone != even {
		n.Calendar, _ = calendar.In(cmp.Or(l.zone, "UTC"), unit) // In has already checked the zone
	}
	return n
}

// even is a name of a zone that only the module's own test suites use. Its calendar windows may have
// any period.
const even = "even"

// decidedBy returns the Kind that decides for l.
func (l Limit) decidedBy() *algorithm.Kind {
	if l.calendar() > 0 {
		return algorithm.Calendar
	}
	return l.kind
}

// isZero reports whether l has a count of 0, so that it denies everything except a cost of 0.
func (l Limit) isZero() bool {
	switch {
	case l.kind == nil || l.kind == unlimited:
		return false
	case l.kind.Slots:
		return l.burst == 0
	}
	return l.rate.count == 0
}

// shared returns the limit that each of n processes enforces alone: 1/n of the count and of the capacity
// of l, but at least one unit. A limit that counts nothing stays as it is.
func (l Limit) shared(n int64) Limit {
	if l.kind == unlimited || l.isZero() {
		return l
	}
	capacity := l.Capacity()
	l.rate.count = max(1, l.rate.count/n)
	if l.kind.Bursts || l.kind.Slots {
		l.burst = max(1, capacity/n)
	}
	return l
}

// tooSmallFor reports whether l has less than one unit for each of n processes.
func (l Limit) tooSmallFor(n int64) bool {
	return l.kind != unlimited && (l.Capacity() < n || !l.kind.Slots && l.rate.count < n)
}

// holds reports whether [Limiter.Reserve] holds units of l, instead of slots or places in a queue.
// It is true for Unlimited, because [Limiter.With] may replace it by a limit that holds units.
func (l Limit) holds() bool { return !l.kind.Slots && !l.kind.Delays }

// check returns the error of New, With and ParseLimit if l is wrong. New also refuses a count of 0: see
// checkCount.
func (l Limit) check() error {
	switch {
	case l.kind == nil:
		return errors.New("make it with FixedWindow, TokenBucket or another algorithm")
	case l.kind == unlimited:
		return nil // Unlimited has neither a rate nor options
	case !slices.Contains(algorithm.Kinds, l.kind):
		return fmt.Errorf("the algorithm %q is not registered: add it to algorithm.Kinds", l.kind.Name)
	case l.mistake != "":
		return errors.New(l.mistake)
	}
	if l.kind.Slots {
		return nil // InFlight has no rate
	}
	if err := l.rate.check(); err != nil {
		return err
	}
	if l.rate.unit > 0 && l.kind != algorithm.FixedWindow {
		return fmt.Errorf("only FixedWindow takes PerWeek and PerMonth: a %v of the calendar is not of a fixed length", l.rate.unit)
	}
	if l.kind.Validate != nil {
		return l.kind.Validate(l.numbers())
	}
	return nil
}

// checkCount returns the error of New if l has a count of 0. A program with such a limit in its code
// probably does not mean to deny everything.
func (l Limit) checkCount() error {
	const meant = "a limit of 0, which denies everything, is for numbers that come from data: give it to With"
	switch {
	case !l.isZero():
		return nil
	case l.kind.Slots:
		return fmt.Errorf("InFlight(0): allowed is 1 to %d: %s", maxCount, meant)
	}
	return fmt.Errorf("the count is 0, allowed is 1 to %d: %s", maxCount, meant)
}
