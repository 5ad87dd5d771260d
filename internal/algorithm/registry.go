package algorithm

// Kinds are all algorithms there are. Package core makes limits of these only, and every suite and
// tool runs over this list, in this order. [Calendar] is a form of FixedWindow.
var Kinds = []*Kind{
	FixedWindow,
	SlidingWindowLog,
	SlidingWindowCounter,
	TokenBucket,
	GCRA,
	LeakyBucket,
	InFlight,
}
