package planted

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// A world is one limiter, whose first limit is under test, with a clock that the test moves. It runs the scripts directly,
// so that each operation meets each value, and counts what the scripts admit once a value is planted.
type world struct {
	*rand.Rand

	t       testing.TB
	client  *redis.Client
	now     int64
	numbers algorithm.Numbers // the numbers of the limit that was made last
	named   bool
	members []algorithm.Limit // some worlds have a second limit, on a key that is never planted
	keys    []string
	before  algorithm.Limit // a limit of the same key with another rate, or the first member
	plant   string          // describes the planted value
	charged int64           // the units charged since then, or since the clock moved
	grants  []grant         // the units held or charged since then
	older   []grant         // the units held or charged before
	loose   bool            // admissions are not compared with the limit, because planted sums, or the ends of earlier holds, change how many are right
}

// A grant is the units that a decision charged or held.
type grant struct {
	n       int64
	handles []algorithm.Handle
	charged bool // the units were charged, and not held
}

const key = "planted:{k}"

// begin is the time of the clock at first. It is so far ahead of the server's clock that no key expires during a test.
const begin = 3_000_000_000_123_456

// variants returns every algorithm.
func variants() []limits.Variant { return append(limits.All(), limits.Slots()...) }

func newWorld(t testing.TB, client *redis.Client, seed uint64, of ...limits.Variant) *world {
	client.Del(t.Context(), key, key+"2")
	return newWorldBeside(t, client, seed, of...)
}

// newWorldBeside returns a world that finds what another one has stored.
func newWorldBeside(t testing.TB, client *redis.Client, seed uint64, of ...limits.Variant) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 24)), t: t, client: client, now: begin}
	v := pick(w, of...)
	w.named = w.IntN(2) == 0
	w.members = []algorithm.Limit{w.member(v, 0)}
	w.before, w.keys = w.members[0], []string{key}
	if w.IntN(4) == 0 {
		period := w.numbers.Period
		if v.Kind.Debt && w.named {
			period = 0
		}
		w.before = w.member(v, period)
	}
	if w.IntN(4) == 0 {
		w.members, w.keys = append(w.members, w.member(limits.Named("gcra"), 0)), append(w.keys, key+"2")
	}
	return w
}

// member returns a limit of random numbers, with the given period if that is not 0.
func (w *world) member(v limits.Variant, period int64) algorithm.Limit {
	for {
		n := algorithm.Numbers{
			Count: pick[int64](w, 1, 3, 10, 1000, 99_991, 1_000_000_000), Period: pick[int64](w, 1000, 10_000_000, 86_400_000_000, 34_560_000_000_000),
			Aligned: v.Aligned, Named: w.named,
		}
		if period > 0 {
			n.Period = period
		}
		if n.Burst = n.Count; v.Kind.Validate == nil || v.Kind.Validate(n) == nil {
			m := algorithm.Limit{Kind: v.Kind, Evaluator: v.Kind.New(n)}
			m.HoldDuration = algorithm.DefaultHold(m.Evaluator)
			w.numbers = n
			return m
		}
	}
}

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

func (w *world) capacity() int64 {
	units, _ := w.members[0].Capacity()
	return units
}

// scripts has a *redis.Script by the names of the algorithms of its limits, on which alone the text of a script depends.
// Composing a script takes several times as long as running it, and the tests run a few dozen different scripts about ten
// thousand times.
var scripts sync.Map

// script returns the script of members. Its clock is the last argument instead of the server's clock.
func (w *world) script(members []algorithm.Limit) *redis.Script {
	w.t.Helper()
	var all []string
	for _, m := range members {
		all = append(all, m.Name)
	}
	names := strings.Join(all, " ")
	if s, ok := scripts.Load(names); ok {
		return s.(*redis.Script)
	}
	const clock = "local now, grace = tonumber(table.remove(ARGV)), 1e11\n"
	rest, ok := strings.CutPrefix(algorithm.Script(members, algorithm.Form{}), algorithm.Clock)
	if !ok {
		w.t.Fatal("a script does not begin with algorithm.Clock")
	}
	s, _ := scripts.LoadOrStore(names, redis.NewScript(clock+rest))
	return s.(*redis.Script)
}

// run runs the script of members and returns its reply.
func (w *world) run(members []algorithm.Limit, keys []string, args []any) []int64 {
	w.t.Helper()
	reply, err := w.script(members).Run(w.t.Context(), w.client, keys, append(args, strconv.FormatInt(w.now, 10))...).Int64Slice()
	if err != nil {
		w.fatalf("%v", err)
	}
	return reply
}

// fatalf fails the test with a message that also names the algorithm and the planted value.
func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s: %s; planted %s", w.members[0].Name, fmt.Sprintf(format, args...), w.plant)
}

func (w *world) constants(members []algorithm.Limit) []any {
	var args []any
	for _, m := range members {
		constants, _, _ := m.ConstantsAt(w.now)
		args = append(args, constants...)
	}
	return args
}

// decide makes the given number of ordinary decisions on n units in one script.
func (w *world) decide(members []algorithm.Limit, op algorithm.Op, n int64, several int) {
	calls := make([]algorithm.Operation, several)
	for i := range calls {
		calls[i] = algorithm.Operation{Op: op, N: n, Handles: make([]algorithm.Handle, len(members))}
	}
	w.call(members, appendCall(w.constants(members), members, calls[0]), calls)
}

// hold makes calls, all in one script.
func (w *world) hold(members []algorithm.Limit, calls ...algorithm.Operation) {
	args := w.constants(members)
	for _, c := range calls {
		args = appendCall(args, members, c)
	}
	w.call(members, args, calls)
}

// holds returns the duration of the holds of each member.
func holds(members []algorithm.Limit) []any {
	all := make([]any, len(members))
	for i, m := range members {
		all[i] = m.HoldDuration
	}
	return all
}

// appendCall appends the arguments of a call.
func appendCall(args []any, members []algorithm.Limit, c algorithm.Operation) []any {
	if c.Op > algorithm.OpCharge || slices.ContainsFunc(members, func(m algorithm.Limit) bool { return m.Slots }) {
		return c.Append(args, holds(members))
	}
	args = append(args, string(c.Op))
	for _, m := range members {
		args = m.Cost(args, c.N)
	}
	return args
}

// call runs a script with these calls, and checks that each was carried out.
func (w *world) call(members []algorithm.Limit, args []any, calls []algorithm.Operation) {
	was := w.dump()
	left := w.run(members, slices.Repeat(w.keys[:len(members)], len(calls)), args)
	for _, c := range calls {
		answers := make([]algorithm.Answer, len(members))
		reply, _, rest, err := algorithm.SplitReply(left, len(members), 0)
		if err == nil && algorithm.Undone(reply) {
			w.fatalf("operation %c was not carried out", c.Op)
		}
		if err == nil {
			err = algorithm.DecodeReply(reply, c, members, answers)
		}
		if err != nil {
			w.fatalf("operation %c on %d: %v", c.Op, c.N, err)
		}
		if left = rest; c.Op <= algorithm.OpReserve {
			w.decided(members, c, answers, was)
		}
	}
	if len(left) > 0 {
		w.fatalf("the reply has %d numbers more than the calls need", len(left))
	}
}

// decided counts what a decision has admitted, and checks that the key has a TTL.
func (w *world) decided(members []algorithm.Limit, c algorithm.Operation, answers []algorithm.Answer, was string) {
	w.t.Helper()
	admits := true
	for _, a := range answers {
		admits = admits && a.Admits
	}
	if c.Op == algorithm.OpEvaluate {
		return
	}
	if wrote := w.dump() != was && !members[0].Slots; admits || wrote {
		if ttl := w.client.PTTL(w.t.Context(), key).Val(); ttl == -1 || admits && ttl < 0 {
			w.fatalf("after operation %c on %d units, admitted: %v, the TTL is %d, want one above 0", c.Op, c.N, admits, ttl)
		}
	}
	if !admits {
		return
	}
	if w.plant == "" {
		w.older = append(w.older, grant{c.N, c.Handles, c.Op == algorithm.OpCharge})
		return
	}
	held := int64(0)
	for _, g := range w.grants {
		if !g.charged {
			held += g.n
		}
	}
	if !w.loose && w.charged+held+c.N > w.capacity() {
		w.fatalf("%d units were admitted by a limit of %d, with %d charged and %d held before", c.N, w.capacity(), w.charged, held)
	}
	charged := !members[0].Slots && (c.Op == algorithm.OpCharge || members[0].Delays)
	if charged {
		w.charged += c.N
	}
	w.grants = append(w.grants, grant{c.N, c.Handles, charged})
}

// dump returns what is stored at the key.
func (w *world) dump() string { return w.client.Dump(w.t.Context(), key).Val() }

// takeGrant removes and returns the first grant that is charged, or that is held.
func (w *world) takeGrant(charged bool) (grant, bool) {
	for i, g := range w.grants {
		if g.charged == charged {
			w.grants = append(w.grants[:i:i], w.grants[i+1:]...)
			return g, true
		}
	}
	return grant{}, false
}

// id returns a random id for a hold or a slot.
func (w *world) id() int64 { return 1 + w.Int64N(1<<48) }

// cost returns a random cost.
func (w *world) cost() int64 {
	return pick[int64](w, 1, 1, 1, 2, 5, w.capacity(), (w.capacity()+1)/2, max(1, w.capacity()-1), w.capacity()+1)
}

// step does one thing that a limiter may do.
func (w *world) step() {
	members, n := w.members, w.cost()
	slots := members[0].Slots
	handles := make([]algorithm.Handle, len(members))
	call := func(op algorithm.Op) algorithm.Operation {
		return algorithm.Operation{Op: op, N: n, HoldID: w.id(), Handles: handles}
	}
	switch what := w.IntN(12); {
	case what < 3 && !slots:
		w.decide(members, pick(w, algorithm.OpCharge, algorithm.OpCharge, algorithm.OpEvaluate), n, 1)
	case what < 4 && !slots:
		w.decide(members, algorithm.OpCharge, n, 3)
	case what < 5:
		w.hold(members, call(algorithm.OpEvaluate))
	case what < 6:
		w.hold(members, call(algorithm.OpCharge))
	case what < 8:
		w.hold(members, call(algorithm.OpReserve))
	case what < 9:
		w.exchange(n)
	case what < 10:
		w.stray(pick(w, algorithm.OpSettle, algorithm.OpRenew, algorithm.OpRelease, algorithm.OpRefund))
	default:
		w.end()
	}
}

// stray ends or renews holds that do not exist. In a loose world it may use holds from before the value was planted.
func (w *world) stray(op algorithm.Op) {
	g := grant{n: 1 + w.Int64N(9), handles: make([]algorithm.Handle, len(w.members))}
	for i := range g.handles {
		g.handles[i] = algorithm.Handle{A: pick[int64](w, 0, 1, 1<<48), B: pick[int64](w, 0, 1, w.now, 1<<53)}
	}
	if w.loose && len(w.older) > 0 {
		g = pick(w, w.older...)
		if len(g.handles) != len(w.members) {
			return
		}
	}
	call := algorithm.Operation{Op: op, N: g.n, Handles: append([]algorithm.Handle(nil), g.handles...)}
	if op == algorithm.OpSettle && !w.members[0].Slots && !w.members[0].Delays {
		call.Actual = pick[int64](w, 0, g.n, g.n+1)
	}
	w.hold(w.members, call)
}

// exchange settles one lease and takes another beside a decision, in one script.
func (w *world) exchange(n int64) {
	size := len(w.members)
	calls := []algorithm.Operation{
		{Op: algorithm.OpCharge, N: 1, HoldID: w.id(), Handles: make([]algorithm.Handle, size)},
		{Op: algorithm.OpReserve, N: n, HoldID: w.id(), Handles: make([]algorithm.Handle, size)},
	}
	if g, ok := w.takeGrant(false); ok && !w.members[0].Slots {
		calls = append([]algorithm.Operation{{Op: algorithm.OpSettle, N: g.n, Actual: g.n / 2, Handles: g.handles}}, calls...)
		w.charged += g.n / 2
	} else if ok {
		w.grants = append(w.grants, g)
	}
	w.hold(w.members, calls...)
}

// end settles, renews, releases or cancels one of the grants.
func (w *world) end() {
	g, ok := w.takeGrant(w.IntN(3) == 0)
	switch {
	case !ok:
	case g.charged:
		w.hold(w.members, algorithm.Operation{Op: algorithm.OpRefund, N: g.n, Handles: g.handles})
		w.charged -= g.n
	case w.IntN(2) == 0:
		w.hold(w.members, algorithm.Operation{Op: algorithm.OpRenew, N: g.n, Handles: g.handles}) // the call stores the new handles in g
		w.grants = append(w.grants, g)
	case w.members[0].Slots:
		w.hold(w.members, algorithm.Operation{Op: algorithm.OpRelease, N: g.n, Handles: g.handles})
	default:
		actual := pick(w, 0, g.n, g.n/2, g.n+1)
		w.charged += actual
		w.hold(w.members, algorithm.Operation{Op: algorithm.OpSettle, N: g.n, Actual: actual, Handles: g.handles})
	}
}

// advance moves the clock. Charges may not count any more afterwards, but holds count until they expire.
func (w *world) advance() {
	_, window := w.members[0].Capacity()
	w.now += pick[int64](w, 1, 1000, 1_000_000, w.members[0].HoldDuration/2, w.members[0].HoldDuration+w.members[0].HoldDuration/5, window/2, window, 2*window)
	w.charged = 0
	w.grants = slices.DeleteFunc(w.grants, func(g grant) bool { return g.charged || g.handles[0].B <= w.now })
}
