package algorithm

// Kinds are all algorithms there are. Package core makes limits of these only, and every suite and
// tool runs over this list, in this order. [Calendar] is a form of FixedWindow.
var Kinds = []*Kind{
	FixedWindow,
	SlidingWindowLog, SlidingWindowCounter,
	TokenBucket, GCRA,
	LeakyBucket,
	InFlight,
}

// versions are those of all strings that are stored: any other is of a newer version.
const versions = "B1 C1 F1 H1 W1 X1"
