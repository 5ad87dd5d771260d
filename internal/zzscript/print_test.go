package zzscript

import (
	"os"
	"testing"

	"github.com/redislimit/redislimit/internal/algorithm"
)

func TestPrint(t *testing.T) {
	k := algorithm.TokenBucket
	m := algorithm.Member{Kind: k, Evaluator: k.New(algorithm.Numbers{Count: 100, Period: 60_000_000, Burst: 100})}
	os.WriteFile("/tmp/tb.lua", []byte(algorithm.Script([]algorithm.Member{m}, algorithm.Form{})), 0o644)
	f := algorithm.FixedWindow
	w := algorithm.Member{Kind: f, Evaluator: f.New(algorithm.Numbers{Count: 100, Period: 60_000_000, Burst: 100})}
	os.WriteFile("/tmp/two.lua", []byte(algorithm.Script([]algorithm.Member{m, w}, algorithm.Form{Own: true, Bans: algorithm.Bans{}})), 0o644)
	i := algorithm.InFlight
	x := algorithm.Member{Kind: i, Evaluator: i.New(algorithm.Numbers{Count: 100, Period: 60_000_000, Burst: 100})}
	os.WriteFile("/tmp/inflight.lua", []byte(algorithm.Script([]algorithm.Member{x}, algorithm.Form{})), 0o644)
}
