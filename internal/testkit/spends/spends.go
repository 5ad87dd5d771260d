// Package spends judges the admissions of a limiter by the units that were spent. It checks
// that they never exceed the plain definition of the limit, and computes in rational numbers.
// It does not know how a limiter decides, or what it stores.
//
// Units that are reserved may be spent at any instant until they are settled or expire. The
// judge assumes the worst of these instants.
package spends

import (
	"fmt"
	"math/big"
)

// A Kind is a definition of how many units may be spent.
type Kind int

// The definitions.
const (
	Bucket  Kind = iota // in every interval [a,b], at most Capacity + (b-a)*Count/Period units
	Windows             // in every window that was opened, and between two such windows, at most Capacity units
	Aligned             // in every window that begins at a multiple of Period, or that Limit.Window returns, at most Capacity units
	Log                 // in every interval [a,a+Period), at most Capacity units
	Counter             // in a window up to any spend, and weighted in the window before, at most Capacity units together
)

// A Scale says by which time a History is judged if the clock of the limiter may step back, and how far it may do so
// without making the judgment wrong.
type Scale int

// The scales.
const (
	Elapsed        Scale = iota // the time that has passed; any step back
	InOpened                    // the time of the clock; a step back within the newest of the windows that were opened, or after its end
	InPeriod                    // the time of the clock; a step back within a multiple of Period
	LatestInPeriod              // the latest time that the clock has shown; a step back within a multiple of Period
)

// Scale returns the scale by which a History of this kind is judged. Each kind must be listed here.
func (k Kind) Scale() Scale {
	switch k {
	case Bucket, Log: // these kinds are about intervals of time, and all others about windows of the clock
		return Elapsed
	case Windows:
		return InOpened
	case Aligned:
		return InPeriod
	case Counter:
		return LatestInPeriod
	}
	panic(fmt.Sprintf("spends: Kind.Scale does not say by which time a history of kind %d is judged: add the kind there", k))
}

// Limit is a definition with its numbers. Period is in the same unit as all instants.
type Limit struct {
	Kind                    Kind
	Count, Period, Capacity int64

	// Window returns the window that contains t. It is for Aligned, and nil if windows begin at multiples of
	// Period.
	Window func(t int64) (start, end int64)
}

// History has the events of one limit of a key. They are in steps, which are numbered upwards from 1.
//
// The instants of a History never go back. For a Bucket, an instant is the time that has elapsed. For the
// other kinds, it is the instant of a decision, which is never before the newest instant that the limiter has
// stored.
type History struct {
	Spends []Spend
	Debts  []Debt
	Resets []int    // the steps at which the charged units were forgotten, in order
	Opened []Window // for Windows, the windows that were opened, in order
}

// A Spend is a number of units that were admitted at a step. They may be spent at any instant from From to
// Until, both included.
type Spend struct {
	Units       int64
	Step        int
	From, Until int64
	Charged     int // the step at which they were charged, or 0 if they were not charged yet
}

// A Debt is a number of units that were charged without being admitted, because a settlement charged more than
// was reserved. A Debt may exceed the limit, but it leaves less room for later admissions.
type Debt struct {
	Units int64
	Step  int
	At    int64
}

// A Window contains the instants from Start on and before End.
type Window struct{ Start, End int64 }

// Judge returns an error if any admission in h exceeded l.
func Judge(l Limit, h History) error {
	for _, s := range h.Spends {
		if err := JudgeAt(l, h, s); err != nil {
			return err
		}
	}
	return nil
}

// JudgeAt returns an error if last, an admission in h, exceeded l together with the units that had been admitted
// and charged before it.
func JudgeAt(l Limit, h History, last Spend) error {
	if last.Units == 0 {
		return nil
	}
	p := prefix{limit: l, last: last}
	reset := 0 // the step of the last reset before last
	for _, step := range h.Resets {
		if step < last.Step {
			reset = step
		}
	}
	for _, s := range h.Spends {
		forgotten := s.Charged > 0 && s.Charged <= reset
		if s.Step <= last.Step && s.Units > 0 && !forgotten {
			p.spends = append(p.spends, s)
		}
	}
	for _, d := range h.Debts {
		if d.Step < last.Step && d.Step > reset {
			p.debts = append(p.debts, d)
		}
	}
	for _, w := range h.Opened {
		if w.Start <= last.From {
			p.opened = append(p.opened, w)
		}
	}
	switch l.Kind {
	case Bucket:
		return p.bucket()
	case Windows:
		return p.windows()
	case Aligned:
		return p.aligned()
	case Log:
		return p.log()
	case Counter:
		return p.counter()
	}
	panic(fmt.Sprintf("spends: JudgeAt does not say how to judge a history of kind %d: add the kind there", l.Kind))
}

// never is later than all instants.
const never = 1 << 62

// prefix is a history up to an admission, without the units that a reset has forgotten.
type prefix struct {
	limit  Limit
	last   Spend
	spends []Spend
	debts  []Debt
	opened []Window
}

// starts returns instants among which the beginning of the interval with the most units is.
func (p *prefix) starts() []int64 {
	var all []int64
	for _, s := range p.spends {
		all = append(all, s.Until)
	}
	for _, d := range p.debts {
		all = append(all, d.At)
	}
	return all
}

// within returns how many units may be spent at start or later and before end, all in one and the same course of
// events. This requires that the last admission is before end.
func (p *prefix) within(start, end int64) int64 {
	sum := int64(0)
	for _, s := range p.spends {
		held := s.Charged == 0 || s.Charged > p.last.Step
		if s.Until >= start && (held || s.From < end) {
			sum += s.Units
		}
	}
	for _, d := range p.debts {
		if d.At >= start && d.At < end {
			sum += d.Units
		}
	}
	return sum
}

// bucket judges the last admission by Bucket, and likewise the methods windows, aligned, log and counter.
func (p *prefix) bucket() error {
	for _, a := range p.starts() {
		length := max(0, p.last.From-a)
		most := new(big.Int).Mul(big.NewInt(p.limit.Capacity), big.NewInt(p.limit.Period))
		most.Add(most, new(big.Int).Mul(big.NewInt(length), big.NewInt(p.limit.Count)))
		spent := new(big.Int).Mul(big.NewInt(p.within(a, never)), big.NewInt(p.limit.Period))
		if spent.Cmp(most) > 0 {
			return p.errorf("%d units in [%d,%d]", p.within(a, never), a, a+length)
		}
	}
	return nil
}

// window checks that at most Capacity units may be spent in the window [start, end). If the last admission is
// not before end, the window was judged before.
func (p *prefix) window(start, end int64) error {
	if n := p.within(start, end); p.last.From < end && n > p.limit.Capacity {
		return p.errorf("%d units in [%d,%d)", n, start, end)
	}
	return nil
}

func (p *prefix) windows() error {
	for i, w := range p.opened {
		if err := p.window(w.Start, w.End); err != nil {
			return err
		}
		next := int64(never)
		if i+1 < len(p.opened) {
			next = p.opened[i+1].Start
		}
		if err := p.window(w.End, next); err != nil {
			return err
		}
	}
	if len(p.opened) == 0 {
		return p.window(-never, never)
	}
	return nil
}

func (p *prefix) aligned() error {
	for _, a := range p.starts() {
		start := windowStart(a, p.limit.Period)
		end := start + p.limit.Period
		if p.limit.Window != nil {
			start, end = p.limit.Window(a)
		}
		if err := p.window(start, end); err != nil {
			return err
		}
	}
	return nil
}

func (p *prefix) log() error {
	for _, a := range p.starts() {
		if err := p.window(a, a+p.limit.Period); err != nil {
			return err
		}
	}
	return nil
}

// counter checks the instant of the last admission, and the first instant of each later window. At later instants
// of a window, the units of the window before it count less.
func (p *prefix) counter() error {
	if err := p.weigh(p.last.From); err != nil {
		return err
	}
	for _, s := range p.spends {
		start := windowStart(s.Until, p.limit.Period)
		if start > p.last.From {
			if err := p.weigh(start); err != nil {
				return err
			}
		}
	}
	return nil
}

// weigh checks that at most Capacity units count at the instant x.
func (p *prefix) weigh(x int64) error {
	period := p.limit.Period
	start := windowStart(x, period)
	end := start + period
	now := p.within(start, end)
	before := p.within(start-period, end) - now
	used := big.NewRat(end-x, period)
	used.Mul(used, big.NewRat(before, 1))
	used.Add(used, big.NewRat(now, 1))
	if used.Cmp(big.NewRat(p.limit.Capacity, 1)) > 0 {
		return p.errorf("%s units weigh at %d", used.RatString(), x)
	}
	return nil
}

func (p *prefix) errorf(format string, args ...any) error {
	return fmt.Errorf("%s by the admission of %d at step %d (%d), where %d is the most",
		fmt.Sprintf(format, args...), p.last.Units, p.last.Step, p.last.From, p.limit.Capacity)
}

// windowStart returns the last multiple of period at or before t.
func windowStart(t, period int64) int64 { return t - ((t%period)+period)%period }
