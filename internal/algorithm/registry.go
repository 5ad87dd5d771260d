package algorithm

// Kinds are all algorithms there are. Package core makes limits of these only, and
// every suite runs over this list.
var Kinds = []*Kind{
	FixedWindow,
	SlidingWindowLog,
	SlidingWindowCounter,
	TokenBucket,
	LeakyBucket,
	GCRA,
}
