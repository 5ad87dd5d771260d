package outage

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

// fault is one way in which Redis fails. Between on and off, Redis cannot make a decision.
type fault struct {
	name   string
	setup  setup
	on     func(testing.TB, *env)
	off    func(testing.TB, *env)
	silent bool // nothing answers, so each call to Redis takes a whole timeout
	mayRun bool // the script may have run although its reply is lost
}

func pass(_ testing.TB, e *env) { e.proxy.Pass() }

// command returns the functions of a fault that one command of an administrator begins and another ends.
func command(on, off string) (start, end func(testing.TB, *env)) {
	return func(tb testing.TB, e *env) {
			tb.Helper()
			e.do(tb, on)
		}, func(tb testing.TB, e *env) {
			tb.Helper()
			e.do(tb, off)
		}
}

func faults() []fault {
	network := func(name string, on func(*env)) fault {
		return fault{name: name, on: func(_ testing.TB, e *env) { on(e) }, off: pass}
	}
	server := func(name, on, off string) fault {
		f := fault{name: name}
		f.on, f.off = command(on, off)
		return f
	}
	hung := func(f fault) fault { f.silent = true; return f }
	ran := func(f fault) fault { f.mayRun = true; return f }
	return []fault{
		{
			name: "paused", silent: true, mayRun: true, // the server runs the commands it was sent when it resumes
			on:  func(_ testing.TB, e *env) { e.server.Pause() },
			off: func(_ testing.TB, e *env) { e.server.Resume() },
		},
		hung(network("silence", func(e *env) { e.proxy.Silence() })),
		hung(ran(network("half a reply", func(e *env) { e.proxy.HalfReply("EVALSHA", "EVAL") }))),
		ran(network("reply dropped", func(e *env) { e.proxy.DropReply("EVALSHA", "EVAL") })),
		hung(ran(network("latency", func(e *env) { e.proxy.Latency(e.timeout * 6 / 5) }))),
		hung(network("blackhole", func(e *env) { e.proxy.Blackhole() })),
		network("reset", func(e *env) { e.proxy.Reset() }),
		network("refused", func(e *env) { e.proxy.Refuse() }),
		server("out of memory", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
		server("read-only replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
		server("no permission", "ACL SETUSER default -eval -evalsha", "ACL SETUSER default +@all"),
		busy(), loading(), wrongPassword(), badCertificate(),
	}
}

// busy is a fault in which the script of another client does not end. Redis replies BUSY after busy-reply-threshold.
func busy() fault {
	f := fault{name: "busy script", setup: setup{config: []string{"--lua-time-limit", "10"}}}
	f.on = func(tb testing.TB, e *env) {
		go func() { e.ended <- e.admin.Eval(tb.Context(), "while true do end", nil).Err() }()
		check.Eventually(tb, "the server is busy", func() bool { return redis.HasErrorPrefix(e.admin.Ping(tb.Context()).Err(), "BUSY") })
	}
	f.off = func(tb testing.TB, e *env) {
		e.do(tb, "SCRIPT KILL")
		<-e.ended // the script ends with an error, because it was killed
	}
	return f
}

// loading is a fault in which the server starts with a dump and loads it slowly, by settings that Redis has for its own
// tests, until the fault ends.
func loading() fault {
	f := fault{name: "loading", setup: setup{config: []string{"--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"}}}
	f.on = func(tb testing.TB, e *env) {
		pipe := e.admin.Pipeline()
		for i := range 1000 {
			pipe.Set(tb.Context(), fmt.Sprint("filler:", i), fmt.Sprintf("%01024d", i*7919), 0)
		}
		if _, err := pipe.Exec(tb.Context()); err != nil {
			tb.Error(err)
		}
		e.do(tb, "CONFIG SET rdbcompression no")
		e.do(tb, "SAVE")
		e.server.Stop()
		go func() {
			defer func() { e.ended <- nil }()
			e.server.Start(tb) // returns when the server has loaded the dump
		}()
		check.Eventually(tb, "the server is loading", func() bool { return redis.HasErrorPrefix(e.admin.Ping(tb.Context()).Err(), "LOADING") })
	}
	f.off = func(tb testing.TB, e *env) {
		tb.Helper()
		e.do(tb, "CONFIG SET key-load-delay 0")
		<-e.ended
	}
	return f
}

// wrongPassword is a fault in which the password of the client's user is changed.
func wrongPassword() fault {
	f := fault{name: "wrong password", setup: setup{options: func(o *redis.Options) { o.Password = "once right" }}}
	f.on = func(tb testing.TB, e *env) {
		e.do(tb, "ACL SETUSER default resetpass >other")
		e.do(tb, "CLIENT KILL TYPE normal SKIPME yes") // a connection that is authenticated would stay so
	}
	f.off = func(tb testing.TB, e *env) { e.do(tb, "ACL SETUSER default nopass") }
	return f
}

// badCertificate is a fault in which the server's certificate becomes invalid.
func badCertificate() fault {
	return fault{
		name: "bad certificate", setup: setup{tls: true},
		on: func(_ testing.TB, e *env) {
			e.tls.bad.Store(true)
			e.proxy.Reset() // an existing connection would go on
			e.proxy.Pass()
		},
		off: func(_ testing.TB, e *env) { e.tls.bad.Store(false) },
	}
}

// killed is a fault in which the server is stopped and started again. It comes back empty, because it stores nothing on
// disk.
func killed() fault {
	return fault{
		name: "killed",
		on:   func(_ testing.TB, e *env) { e.server.Stop() },
		off:  func(tb testing.TB, e *env) { e.server.Start(tb) },
	}
}
