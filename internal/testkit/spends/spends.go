// Package spends judges a limiter by the units that were spent: it decides whether a limit, by its plain definition and in
// rational numbers, could have admitted the units of a history at the instants when they were spent. It does not know about
// holds, about how a limiter decides, or about its stored state.
//
// Reserved units may be spent at any instant until they are settled or expire. The judge assumes that an adversary chooses
// the worst instants.
package spends

import (
	"fmt"
	"math/big"
)

// A Kind is a definition of how many units may be spent.
type Kind int

// The definitions.
const (
	Bucket  Kind = iota // in every interval [a,b]: Capacity + (b-a)*Count/Period
	Windows             // in every opened window, and between two windows: Capacity
	Aligned             // in every window that begins at a multiple of Period, or that Window returns: Capacity
	Log                 // in every interval [a,a+Period): Capacity
	Counter             // at every spend, of the units in its window and the weighted units of the window before: Capacity
)

// Limit is a definition with its numbers. Period is in the same unit as all instants.
type Limit struct {
	Kind                    Kind
	Count, Period, Capacity int64

	Window func(t int64) (start, end int64) // for Aligned, if windows do not begin at multiples of Period: returns the window that contains t
}

// History is the history of one limit of a key, in steps that are numbered upwards from 1.
//
// Instants are on a scale that never goes back: for a Bucket it is the elapsed time, and for other kinds the instant of the
// decision, which is never before the newest stored instant.
type History struct {
	Spends []Spend
	Debts  []Debt
	Resets []int    // the steps of the resets, in order: each forgets the units charged before it
	Opened []Window // for Windows: the windows that were opened, in order
}

// Spend is a number of units that were admitted at a step, and may be spent at any instant from From to Until, both
// inclusive.
type Spend struct {
	Units       int64
	Step        int
	From, Until int64
	Charged     int // the step at which they were charged; 0: not yet
}

// Debt is a number of units that were charged without being admitted, because something cost more than was reserved for it.
// The limit need not have room for them, but they leave less room for later admissions.
type Debt struct {
	Units int64
	Step  int
	At    int64
}

// Window is the time from Start, inclusive, to End, exclusive.
type Window struct{ Start, End int64 }

// Judge returns an error if any admission of h went beyond l.
func Judge(l Limit, h History) error {
	for _, s := range h.Spends {
		if err := JudgeAt(l, h, s); err != nil {
			return err
		}
	}
	return nil
}

// JudgeAt returns an error if last, an admission of h, went beyond l, considering the units that were admitted and charged
// before it.
func JudgeAt(l Limit, h History, last Spend) error {
	if last.Units == 0 {
		return nil
	}
	p := prefix{limit: l, last: last}
	reset := 0 // the step of the last reset before it
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
	panic(fmt.Sprintf("spends: no kind %d", l.Kind))
}

const never = 1 << 62

// prefix is a history up to its last admission, without forgotten units.
type prefix struct {
	limit  Limit
	last   Spend
	spends []Spend
	debts  []Debt
	opened []Window
}

// starts returns the instants at which the fullest intervals begin.
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

// within returns the units that may be spent at start or later and before end, all together, if the last admission is
// before end.
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

// window judges the window [start, end), if the last admission is before its end.
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

// counter judges the last admission, and the first instant of each later window. At later instants of a window, the units
// of the window before weigh less.
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
	return fmt.Errorf("%s after the admission of %d units at step %d (instant %d), want at most %d",
		fmt.Sprintf(format, args...), p.last.Units, p.last.Step, p.last.From, p.limit.Capacity)
}

// windowStart returns the last multiple of period at or before t.
func windowStart(t, period int64) int64 { return t - ((t%period)+period)%period }
