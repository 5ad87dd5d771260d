package model_test

import (
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
)

func bucketOf(a model.Algorithm, count, period, burst int64) model.Limit {
	return model.Limit{Algorithm: a, Count: count, Period: period, Burst: burst}
}

var buckets = []model.Algorithm{model.TokenBucket, model.LeakyBucket, model.GCRA}

// delay is what only a leaky bucket says.
func delay(a model.Algorithm, d string) string {
	if a == model.LeakyBucket {
		return " delay=" + d
	}
	return ""
}

func TestBucketsDrainContinuously(t *testing.T) {
	for _, a := range buckets {
		t.Run(string(a), func(t *testing.T) {
			k := newKey(t, bucketOf(a, 3, 10, 4)) // a unit every 10/3 µs
			k.take(1000, 5, "never t=1000 left=4/4")
			k.take(1000, 0, "ok t=1000 left=4/4")
			k.take(1000, 3, "ok t=1000 left=1/4 reset=10 until=1010")
			k.take(1000, 2, "no t=1000 left=1/4 retry=10/3 reset=10 until=1010")
			// used 3 - 0.6 = 2.4
			k.take(1002, 2, "no t=1002 left=1/4 retry=4/3 reset=8 until=1010")
			k.take(1003, 2, "no t=1003 left=1/4 retry=1/3 reset=7 until=1010")
			k.peek(1004, "ok t=1004 left=2/4 reset=6"+delay(a, "6")+" until=1010")
			k.take(1004, 2, "ok t=1004 left=0/4 reset=38/3"+delay(a, "6")+" until=3050/3") // 1.8 + 2
			k.take(1004, 0, "ok t=1004 left=0/4 reset=38/3 until=3050/3")
			k.take(1004, 4, "no t=1004 left=0/4 retry=38/3 reset=38/3 until=3050/3")
			k.peek(1005, "no t=1005 left=0/4 retry=5/3 reset=35/3 until=3050/3")
			k.peek(1016, "ok t=1016 left=3/4 reset=2/3"+delay(a, "2/3")+" until=3050/3")
			k.peek(1017, "ok t=1017 left=4/4 until=3050/3")
		})
	}
}

func TestLeakyDelayIsThePlaceInTheQueue(t *testing.T) {
	k := newKey(t, bucketOf(model.LeakyBucket, 2, 10, 4)) // one every 5 µs
	k.take(1000, 1, "ok t=1000 left=3/4 reset=5 until=1005")
	k.take(1000, 2, "ok t=1000 left=1/4 reset=15 delay=5 until=1015") // behind one, not behind itself
	k.take(1000, 1, "ok t=1000 left=0/4 reset=20 delay=15 until=1020")
	k.take(1000, 1, "no t=1000 left=0/4 retry=5 reset=20 until=1020")
	k.take(1007, 1, "ok t=1007 left=0/4 reset=18 delay=13 until=1025")
	k.take(1025, 1, "ok t=1025 left=3/4 reset=5 until=1030") // nothing is used
}

func TestClockBackGrows(t *testing.T) {
	for _, a := range buckets {
		t.Run(string(a), func(t *testing.T) {
			k := newKey(t, bucketOf(a, 1, 10, 4))
			k.take(1000, 2, "ok t=1000 left=2/4 reset=20 until=1020") // TAT 1020
			k.peek(995, "ok t=995 left=1/4 reset=25"+delay(a, "25")+" until=1020")
			k.take(990, 2, "no t=990 left=1/4 retry=10 reset=30 until=1020")
			k.peek(900, "no t=900 left=0/4 retry=90 reset=120 until=1020") // 12 units: the step counts
			k.take(900, 4, "no t=900 left=0/4 retry=120 reset=120 until=1020")
			k.peek(1010, "ok t=1010 left=3/4 reset=10"+delay(a, "10")+" until=1020")
			k.take(990, 1, "ok t=990 left=0/4 reset=40"+delay(a, "30")+" until=1030")
		})
	}
}

func TestBucketRefundIsOfTheLastCharge(t *testing.T) {
	for _, a := range buckets {
		t.Run(string(a), func(t *testing.T) {
			k := newKey(t, bucketOf(a, 1, 10, 4))
			first := k.take(1000, 1, "ok t=1000 left=3/4 reset=10 until=1010")
			second := k.take(1000, 3, "ok t=1000 left=0/4 reset=40"+delay(a, "10")+" until=1040")
			k.Refund(1005, first) // three were charged on top of it
			k.peek(1005, "no t=1005 left=0/4 retry=5 reset=35 until=1040")
			k.Refund(1005, second)
			k.peek(1005, "ok t=1005 left=3/4 reset=5"+delay(a, "5")+" until=1010")
			k.Refund(1005, first) // spent, though now it is the last
			k.peek(1005, "ok t=1005 left=3/4 reset=5"+delay(a, "5")+" until=1010")

			// From the last to the first: as before.
			k = newKey(t, bucketOf(a, 1, 10, 4))
			first = k.take(1000, 2, "ok t=1000 left=2/4 reset=20 until=1020")
			second = k.take(1003, 1, "ok t=1003 left=1/4 reset=27"+delay(a, "17")+" until=1030")
			k.Refund(1003, second)
			k.Refund(1003, first)
			k.peek(1003, "ok t=1003 left=4/4")

			// No more than what has not drained, of two units half a one here.
			k = newKey(t, bucketOf(a, 1, 10, 4))
			first = k.take(1000, 2, "ok t=1000 left=2/4 reset=20 until=1020")
			k.Refund(1015, first)
			k.peek(1000, "ok t=1000 left=4/4") // nothing is stored: the clock is free

			// What has drained was under what has not: of 1 and 2 at 1015, the 2 have 1.5 left.
			k = newKey(t, bucketOf(a, 1, 10, 4))
			k.take(1000, 1, "ok t=1000 left=3/4 reset=10 until=1010")
			second = k.take(1000, 2, "ok t=1000 left=1/4 reset=30"+delay(a, "10")+" until=1030")
			k.Refund(1015, second)
			k.peek(1015, "ok t=1015 left=4/4")

			// Nothing, when all has drained: not even for a clock that steps back then.
			k = newKey(t, bucketOf(a, 1, 10, 4))
			first = k.take(1000, 2, "ok t=1000 left=2/4 reset=20 until=1020")
			k.Refund(1020, first)
			k.peek(1010, "ok t=1010 left=3/4 reset=10"+delay(a, "10")+" until=1020")
		})
	}
}

// Charges that have drained cannot be given back while others are charged.
func TestBucketRefundsCannotBeGathered(t *testing.T) {
	for _, a := range buckets {
		t.Run(string(a), func(t *testing.T) {
			k := newKey(t, bucketOf(a, 1, 10, 4))
			var old []model.Outcome
			for i := range int64(20) {
				old = append(old, k.Decide(1000+10*i, 1))
			}
			k.take(2000, 4, "ok t=2000 left=0/4 reset=40 until=2040")
			for _, o := range old {
				k.Refund(2000, o)
			}
			k.peek(2000, "no t=2000 left=0/4 retry=10 reset=40 until=2040")
		})
	}
}

func TestRefundTakesFromTheWholeDebt(t *testing.T) {
	for _, a := range buckets {
		t.Run(string(a), func(t *testing.T) {
			k := newKey(t, bucketOf(a, 1, 10, 8))
			k.take(1000, 6, "ok t=1000 left=2/8 reset=60 until=1060")
			o := k.take(1000, 2, "ok t=1000 left=0/8 reset=80"+delay(a, "60")+" until=1080")
			k.Change(bucketOf(a, 1, 10, 4))
			k.Refund(1000, o) // 8 - 2, still above 4
			k.peek(1000, "no t=1000 left=0/4 retry=30 reset=60 until=1060")
			k.Change(bucketOf(a, 1, 10, 8))
			k.peek(1000, "ok t=1000 left=2/8 reset=60"+delay(a, "60")+" until=1060")
		})
	}
}

func TestBucketChange(t *testing.T) {
	for _, a := range buckets {
		t.Run(string(a), func(t *testing.T) {
			k := newKey(t, bucketOf(a, 1, 10, 4))
			k.take(1000, 4, "ok t=1000 left=0/4 reset=40 until=1040")
			// Burst: raised, it admits at once; lowered, what is above it is a debt.
			k.Change(bucketOf(a, 1, 10, 6))
			k.take(1000, 2, "ok t=1000 left=0/6 reset=60"+delay(a, "40")+" until=1060")
			k.Change(bucketOf(a, 1, 10, 2))
			k.take(1000, 1, "no t=1000 left=0/2 retry=50 reset=60 until=1060")
			k.take(1000, 3, "never t=1000 left=0/2 reset=60 until=1060")
			k.take(1049, 1, "no t=1049 left=0/2 retry=1 reset=11 until=1060")
			// A debt of another rate is at most the capacity.
			k.Change(bucketOf(a, 1, 20, 1))
			k.take(1040, 1, "no t=1040 left=0/1 retry=20 reset=20 until=1060") // of 2
			k.Change(bucketOf(a, 1, 10, 1))
			k.take(1040, 1, "no t=1040 left=0/1 retry=20 reset=20 until=1060") // that was not kept
		})
	}
}

func TestBucketDrainsAtTheRateItWasChargedAt(t *testing.T) {
	for _, a := range buckets {
		t.Run(string(a), func(t *testing.T) {
			k := newKey(t, bucketOf(a, 1, 10, 4))
			o := k.take(1000, 4, "ok t=1000 left=0/4 reset=40 until=1040")
			k.Change(bucketOf(a, 1, 100, 4)) // ten times slower
			// At 1010 the old rate has left 3; what is said of them is by the new one.
			k.peek(1010, "ok t=1010 left=1/4 reset=300"+delay(a, "300")+" until=1040")
			k.take(1010, 2, "no t=1010 left=1/4 retry=100 reset=300 until=1040")
			k.take(1020, 1, "ok t=1020 left=1/4 reset=300"+delay(a, "200")+" until=1320")
			k.peek(1070, "ok t=1070 left=1/4 reset=250"+delay(a, "250")+" until=1320") // new rate: 2.5
			k.Change(bucketOf(a, 2, 10, 4))
			k.Refund(1070, o) // another charge came on top
			k.Change(bucketOf(a, 1, 100, 4))
			k.peek(1070, "ok t=1070 left=1/4 reset=250"+delay(a, "250")+" until=1320")
			// A refund goes by the rate of its charge, too.
			k.Change(bucketOf(a, 2, 10, 4))
			o = k.take(1320, 3, "ok t=1320 left=1/4 reset=15 until=1335")
			k.Change(bucketOf(a, 1, 50, 4))
			k.Refund(1325, o) // of 3, 2 have not drained
			k.peek(1325, "ok t=1325 left=4/4")
			k.Change(bucketOf(a, 2, 10, 4))
			k.take(1330, 1, "ok t=1330 left=3/4 reset=5 until=1335")
			o = k.take(1330, 2, "ok t=1330 left=1/4 reset=15"+delay(a, "5")+" until=1345")
			k.Change(bucketOf(a, 1, 50, 4))
			k.Refund(1332, o) // 2.6 - 2, which go on draining at the old rate
			k.peek(1332, "ok t=1332 left=3/4 reset=30"+delay(a, "30")+" until=1335")
		})
	}
}

// Thirds of a microsecond neither gather nor get lost: a queue that is never empty
// has room for its i-th further unit exactly 10/3*i µs after it was full.
func TestBucketNeverAccumulatesAnError(t *testing.T) {
	for _, a := range buckets {
		m := model.New(bucketOf(a, 3, 10, 2))
		m.Decide(1000, 2)
		for i := range int64(2000) {
			at := 1000 + (10*(i+1)+2)/3 // rounded up
			if m.Decide(at-1, 1).Allowed {
				t.Fatalf("%s: unit %d admitted before %d", a, i, at)
			}
			if !m.Decide(at, 1).Allowed {
				t.Fatalf("%s: unit %d denied at %d", a, i, at)
			}
		}
	}
}
