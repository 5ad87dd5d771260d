// Package lease tests leases: what is spent, and when, over a real Redis. It holds tests only.
//
// These tests fail when a rule is broken in core/lease.go, unless another file is named:
//
//	counted from when the reply came         ReplyTakesLong, Histories
//	a lease that came too late is kept       ReplyTakesLong
//	only the wall clock is looked at         Ends, Histories
//	only the monotonic clock is looked at    Ends
//	it lasts for a tenth longer              Ends, ReplyTakesLong
//	it is not closed before it is settled    TestLease
//	it is settled twice in the background    GivesBack, Several, Units
//	it has a unit more than is held          TestLease, GivesBack, NearLimit, RedisAway, Several, Units
//	what was spent is not settled            TestLease, GivesBack, NearLimit, Several, Units
//	what is reserved is settled with it      Units, ReservationLasts
//	a Settle after its end stays in it       Units
//	a Refund after its end opens it again    Units
//	a Refund gives back twice                Units (core/refund.go)
//	granted though a limit denies            NearLimit (internal/server/lease.go)
//	as many units as the loosest limit has   SeveralNearLimit (core/hot_key.go)
//	it is spent by other limits, of With     OfWith (core/hot_key.go)
//	a hold is forgotten at its expiry        GivesBack (internal/algorithm/lua/hold_limit.lua)
//
// The other rules of holds are in internal/suite/conformance, and both once more in all short
// histories of a model, in internal/testkit/model.
package lease
