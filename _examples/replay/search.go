package main

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/limittest"
)

// A found is the smallest limit for which something is true.
type found struct {
	limit core.Limit
	outcome
	ok bool // or else none is large enough
}

// An outcome is what a limit denies.
type outcome struct {
	denied int64
	keys   int       // of which anything is denied
	left   []request // those of the keys of which anything is denied
}

// A search tries limits that are like one, but for their counts. A burst grows with the count.
//
// A key of which nothing is denied has nothing denied by a larger limit: it is then in the same
// state or a better one at each of its requests. So a larger limit is tried with the others alone, and
// halving finds the smallest limit for any share of the keys. If each request costs 1 the
// requests that are denied become fewer, too (the first n requests that a larger limit admits
// come no later than the first n of a smaller one). With other costs they may not: one that is large and
// admitted takes the room of many small ones. Then what is found is a limit that suffices while
// the next smaller one does not.
type search struct {
	*traffic

	like  core.Limit
	p     *progress
	tried map[int64]outcome
}

func newSearch(t *traffic, like core.Limit, p *progress) *search {
	return &search{traffic: t, like: like, p: p, tried: map[int64]outcome{0: {left: t.requests}}}
}

// smallest returns the limit with the smallest count that is enough.
func (s *search) smallest(enough func(outcome) bool) (f found, err error) {
	most := s.most()
	small, large := int64(0), int64(1) // small is not enough
	for {
		f.limit, f.outcome, err = s.try(large)
		if err != nil {
			return f, err
		}
		if f.ok = enough(f.outcome); f.ok || large == most {
			break
		}
		small, large = large, min(2*large, most)
	}
	for f.ok && large-small > 1 {
		middle := small + (large-small)/2
		limit, o, err := s.try(middle)
		if err != nil {
			return f, err
		}
		if enough(o) {
			large, f.limit, f.outcome = middle, limit, o
		} else {
			small = middle
		}
	}
	return f, nil
}

// most returns the largest count that the algorithm takes.
func (s *search) most() int64 {
	return int64(sort.Search(1e9, func(n int) bool {
		_, err := withCount(s.like, int64(n)+1)
		return err != nil
	}))
}

// try replays the log by a limit with another count.
func (s *search) try(count int64) (core.Limit, outcome, error) {
	limit, err := withCount(s.like, count)
	if err != nil {
		return limit, outcome{}, err
	}
	if o, ok := s.tried[count]; ok {
		return limit, o, nil
	}
	s.p.say(fmt.Sprintf("trying %v", limit), 0)
	requests := s.left(count)
	reports, err := limittest.Replay(s.arrivals(requests, func(int) {}), limit)
	if err != nil {
		return limit, outcome{}, err
	}
	o := outcome{denied: reports[0].Denied, keys: keysDenied(reports[0]), left: requests}
	denied := make(map[uint32]bool, o.keys)
	for _, k := range reports[0].Keys[:o.keys] {
		denied[s.ids[k.Key]] = true
	}
	if o.keys < len(reports[0].Keys)*3/4 { // else it is not worth the memory
		o.left = slices.Collect(func(yield func(request) bool) {
			for _, r := range requests {
				if denied[r.key] && !yield(r) {
					return
				}
			}
		})
	}
	s.tried[count] = o
	return limit, o, nil
}

// left returns the requests that a limit with such a count may deny.
func (s *search) left(count int64) []request {
	nearest := int64(0)
	for tried := range s.tried {
		if tried < count {
			nearest = max(nearest, tried)
		}
	}
	return s.tried[nearest].left
}

// withCount returns a limit with another count, and a burst in proportion.
func withCount(like core.Limit, count int64) (core.Limit, error) {
	words := strings.Fields(like.String())
	_, period, _ := strings.Cut(words[1], "/")
	words[1] = strconv.FormatInt(count, 10) + "/" + period
	for i, word := range words {
		if text, found := strings.CutPrefix(word, "burst="); found {
			burst, _ := new(big.Int).SetString(text, 10) // it is a number: String wrote it
			burst.Mul(burst, big.NewInt(count))
			burst.Add(burst, big.NewInt(like.Rate().Count()-1))
			words[i] = "burst=" + burst.Div(burst, big.NewInt(like.Rate().Count())).String()
		}
	}
	return core.ParseLimit(strings.Join(words, " "))
}
