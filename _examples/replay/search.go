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

// A found is the result of a search: the smallest limit that is enough.
type found struct {
	limit core.Limit
	outcome
	ok bool // false if no limit is large enough
}

// An outcome describes what a limit denies.
type outcome struct {
	denied int64     // how many requests are denied
	keys   int       // how many keys are denied something
	left   []request // the requests of these keys
}

// A search tries limits that differ from one limit in their counts only. A burst grows with the count.
//
// If a limit denies a key nothing, a larger limit does not either: at each request of the key, the larger limit
// is in the same state or a better one. So a larger limit is tried with the other keys only, and
// halving finds the smallest limit for any share of the keys. If each request costs 1, the
// number of denied requests decreases, too (the first n requests that a larger limit admits
// come no later than the first n of a smaller one). With other costs it may not: a large request that is
// admitted takes the room of many small ones. The search then finds a limit that is enough, while
// the next smaller one is not.
type search struct {
	*traffic

	like  core.Limit
	p     *progress
	tried map[int64]outcome
}

func newSearch(t *traffic, like core.Limit, p *progress) *search {
	return &search{traffic: t, like: like, p: p, tried: map[int64]outcome{0: {left: t.requests}}}
}

// smallest returns the limit with the smallest count for which enough returns true.
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

// most returns the largest count that the algorithm accepts.
func (s *search) most() int64 {
	return int64(sort.Search(1e9, func(n int) bool {
		_, err := withCount(s.like, int64(n)+1)
		return err != nil
	}))
}

// try replays the log with a limit that has another count.
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
	if o.keys < len(reports[0].Keys)*3/4 { // otherwise it is not worth the memory
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

// left returns the requests that a limit with a count may deny.
func (s *search) left(count int64) []request {
	nearest := int64(0)
	for tried := range s.tried {
		if tried < count {
			nearest = max(nearest, tried)
		}
	}
	return s.tried[nearest].left
}

// withCount returns a limit like another one, with another count, and a burst in proportion to it.
func withCount(like core.Limit, count int64) (core.Limit, error) {
	words := strings.Fields(like.String())
	_, period, _ := strings.Cut(words[1], "/")
	words[1] = strconv.FormatInt(count, 10) + "/" + period
	for i, word := range words {
		if text, found := strings.CutPrefix(word, "burst="); found {
			burst, _ := new(big.Int).SetString(text, 10) // String wrote the text, so it is a number
			burst.Mul(burst, big.NewInt(count))
			burst.Add(burst, big.NewInt(like.Rate().Count()-1))
			words[i] = "burst=" + burst.Div(burst, big.NewInt(like.Rate().Count())).String()
		}
	}
	return core.ParseLimit(strings.Join(words, " "))
}
