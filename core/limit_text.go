package core

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A limitWord is an option of a Limit in text form.
type limitWord struct {
	name  string                               // ends with "=" if a value follows
	of    func(k *algorithm.Kind) bool         // whether an algorithm takes the option
	read  func(l *Limit, value string)         // applies the option to l, which records mistakes
	value func(l Limit) (text string, is bool) // returns the value of the option in l, and whether l has the option
}

// limitWords are all options, in the order in which they are written. If the value of slot_ttl is not a
// duration, it is read as 0, which SlotTTL refuses.
var limitWords = []limitWord{
	{
		"burst=", func(k *algorithm.Kind) bool { return k.Bursts },
		func(l *Limit, value string) { Burst(countIn(value)).set(l) },
		func(l Limit) (string, bool) { return strconv.FormatInt(l.burst, 10), l.burst != 0 },
	},
	{
		"aligned", func(k *algorithm.Kind) bool { return k.Aligns },
		func(l *Limit, _ string) { Aligned().set(l) },
		func(l Limit) (string, bool) { return "", l.aligned },
	},
	{
		"in=", func(k *algorithm.Kind) bool { return k.Aligns },
		func(l *Limit, value string) { In(value).set(l) },
		func(l Limit) (string, bool) { return l.zone, l.zone != "" },
	},
	{
		"slot_ttl=", func(k *algorithm.Kind) bool { return k.Slots },
		func(l *Limit, value string) { d, _ := time.ParseDuration(value); SlotTTL(d).set(l) },
		func(l Limit) (string, bool) { return formatPeriod(l.slotTTL), l.slotTTL != 0 },
	},
	{
		"name=", func(*algorithm.Kind) bool { return true },
		func(l *Limit, value string) { LimitName(value).set(l) },
		func(l Limit) (string, bool) { return l.name, l.name != "" },
	},
}

// ParseLimit parses a Limit in the form that suits a configuration file: the algorithm, the rate in
// the form of [ParseRate] (or the number of slots, for in_flight), and then options in any order,
// separated by spaces:
//
//	token_bucket 100/1m burst=200 name=api
//	fixed_window 5000/1d aligned
//	fixed_window 10000/month in=Europe/Berlin
//	in_flight 10 slot_ttl=30s
//	unlimited
//
// The options are burst= ([Burst]), aligned ([Aligned]), in= ([In]), slot_ttl= ([SlotTTL]) and
// name= ([LimitName]); [Unlimited] has none. The Limit equals the one that the constructor would
// return. [Limiter.With] accepts it, and so does [New] unless its count is 0, as in "token_bucket
// 0/1m". The error for any other text names the wrong word and says what is allowed.
func ParseLimit(text string) (Limit, error) {
	l, err := parseLimit(strings.Fields(text))
	if err != nil {
		return Limit{}, fmt.Errorf("redislimit: limit %.80q: %w", text, err)
	}
	return l, nil
}

func parseLimit(words []string) (Limit, error) {
	if len(words) == 0 {
		return Limit{}, errors.New("want an algorithm and a rate, as in \"token_bucket 100/1m\"")
	}
	if words[0] == unlimited.Name {
		if len(words) > 1 {
			return Limit{}, fmt.Errorf("%s: %s has no rate and no options", plain(words[1]), unlimited.Name)
		}
		return Unlimited(), nil
	}
	i := slices.IndexFunc(algorithm.Kinds, func(k *algorithm.Kind) bool { return k.Name == words[0] })
	if i < 0 {
		known := append(slices.Clone(algorithm.Kinds), unlimited)
		return Limit{}, fmt.Errorf("%s: allowed are %s", plain(words[0]), listed(known, func(k *algorithm.Kind) string { return k.Name }))
	}
	l, err := parseAmount(algorithm.Kinds[i], words[1:])
	if err != nil {
		return Limit{}, err
	}
	for _, word := range words[2:] {
		if err := l.read(word); err != nil {
			return Limit{}, err
		}
	}
	l = l.canonical()
	return l, l.check()
}

// parseAmount returns a Limit of the algorithm k, still without options. The first of words is its rate,
// or for InFlight the number of slots.
func parseAmount(k *algorithm.Kind, words []string) (Limit, error) {
	switch {
	case len(words) == 0 && k.Slots:
		return Limit{}, fmt.Errorf("%s: want how many at a time, as in \"%s 10\"", k.Name, k.Name)
	case len(words) == 0:
		return Limit{}, fmt.Errorf("%s: want a rate, as in \"%s 100/1m\"", k.Name, k.Name)
	case k.Slots:
		l := InFlight(countIn(words[0]))
		return l, l.mistakeIn(k.Name + " " + words[0])
	}
	r, err := parseRate(words[0])
	return newLimit(k, r), err
}

// countIn returns the number of units that text says. If text is not a number, countIn returns -1, which
// InFlight and Burst refuse.
func countIn(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// read applies the option that word describes to l.
func (l *Limit) read(word string) error {
	name, value, found := strings.Cut(word, "=")
	if found {
		name += "="
	}
	var taken []limitWord
	for _, w := range limitWords {
		if !w.of(l.kind) {
			continue
		}
		if w.name == name {
			w.read(l, value)
			return l.mistakeIn(word)
		}
		taken = append(taken, w)
	}
	return fmt.Errorf("%s: %s takes %s", plain(word), l.kind.Name, listed(taken, func(w limitWord) string { return w.name }))
}

// mistakeIn returns the mistake of l as an error, or nil if there is none. The mistake begins with the
// option in Go, as in "Burst(0): allowed is ...". The error begins with word instead.
func (l *Limit) mistakeIn(word string) error {
	if l.mistake == "" {
		return nil
	}
	_, allowed, _ := strings.Cut(l.mistake, ": ")
	return fmt.Errorf("%s: %s", plain(word), allowed)
}

// plain returns word in a form for error messages: shortened, and with escapes for characters that cannot be
// printed.
func plain(word string) string {
	quoted := fmt.Sprintf("%.80q", word)
	return quoted[1 : len(quoted)-1]
}

// listed returns the names of all, separated by commas.
func listed[T any](all []T, name func(T) string) string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = name(one)
	}
	return strings.Join(names, ", ")
}

// String returns the Limit in the form that [ParseLimit] reads, with the options that were given,
// as in "token_bucket 100/1m burst=200 name=api". If an option is wrong, the text leaves out all
// options, so ParseLimit may read another Limit from it. The text of Limit{} is "Limit{}", which
// ParseLimit refuses.
func (l Limit) String() string {
	switch l.kind {
	case nil:
		return "Limit{}"
	case unlimited:
		return unlimited.Name
	}
	words := []string{l.kind.Name, l.rate.String()}
	if l.kind.Slots {
		words[1] = strconv.FormatInt(l.burst, 10)
	}
	for _, w := range limitWords {
		if value, is := w.value(l); is && w.of(l.kind) && l.mistake == "" {
			words = append(words, w.name+value)
		}
	}
	return strings.Join(words, " ")
}

// MarshalText returns the text of [Limit.String]. It returns an error for a Limit that
// [Limiter.With] refuses, such as Limit{}.
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("redislimit: limit %v: %w", l, err)
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads what [ParseLimit] reads, so that a Limit can be a field of a configuration.
func (l *Limit) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLimit(string(text))
	return err
}
