package algorithm

// Kinds has all algorithms, except that [Calendar] is not in it: it is a form of FixedWindow. Package core
// makes limits only of these algorithms, and every suite and tool uses this list, in this order.
var Kinds = []*Kind{
	FixedWindow,
	SlidingWindowLog, SlidingWindowCounter,
	TokenBucket, GCRA,
	LeakyBucket,
	InFlight,
}

// Versions has the letter and version with which each stored string begins, of all algorithms, bans and
// holds. A string with another version was written by a newer version of this library. The suites, which
// plant damaged values, use this list, too.
const Versions = "B1 C1 F1 H1 W1 X1"
