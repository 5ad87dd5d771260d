package algorithm

// Kinds are all algorithms. Package core makes limits only of these, and every suite and tool uses this
// list, in this order. [Calendar] is a form of FixedWindow.
var Kinds = []*Kind{
	FixedWindow,
	SlidingWindowLog, SlidingWindowCounter,
	TokenBucket, GCRA,
	LeakyBucket,
	InFlight,
}

// versions are the versions of all strings that are stored. A string with any other version was written by a
// newer version of this library.
const versions = "B1 C1 F1 H1 W1 X1"
