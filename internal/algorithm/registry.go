package algorithm

// Kinds has all algorithms except [Calendar], which users know as a form of FixedWindow. Package core makes
// limits only of these algorithms, and every suite and tool uses this list, in this order.
var Kinds = []*Kind{
	FixedWindow,
	SlidingWindowLog, SlidingWindowCounter,
	TokenBucket, GCRA,
	LeakyBucket,
	InFlight,
}

// Versions has the letter and version of each form of a stored string. B1, C1, F1 and W1 belong to the
// algorithms, X1 to a ban, and H1 to a record of holds. A string with another version counts as
// written by a newer version of this library. The suites that plant damaged values use this list, too.
const Versions = "B1 C1 F1 H1 W1 X1"
