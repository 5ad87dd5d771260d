package outage

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// fault is one way in which Redis fails. Between on and off no decision can come from it.
type fault struct {
	name   string
	setup  setup
	on     func(testing.TB, *world)
	off    func(testing.TB, *world)
	silent bool // nothing answers: each call that is made costs a timeout
	mayRun bool // the script may have run though nobody learns of it
}

func pass(_ testing.TB, w *world) { w.proxy.Pass() }

// command is a fault that an administrator's command makes, and another one ends.
func command(on, off string) (start, end func(testing.TB, *world)) {
	return func(tb testing.TB, w *world) {
			tb.Helper()
			w.do(tb, on)
		}, func(tb testing.TB, w *world) {
			tb.Helper()
			w.do(tb, off)
		}
}

func faults() []fault {
	network := func(name string, on func(*world)) fault {
		return fault{name: name, on: func(_ testing.TB, w *world) { on(w) }, off: pass}
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
			name: "paused", silent: true, mayRun: true, // what was sent is run when it wakes up
			on:  func(_ testing.TB, w *world) { w.server.Pause() },
			off: func(_ testing.TB, w *world) { w.server.Resume() },
		},
		hung(network("silence", func(w *world) { w.proxy.Silence() })),
		hung(ran(network("half a reply", func(w *world) { w.proxy.HalfReply("EVALSHA", "EVAL") }))),
		ran(network("reply dropped", func(w *world) { w.proxy.DropReply("EVALSHA", "EVAL") })),
		hung(ran(network("latency", func(w *world) { w.proxy.Latency(300 * time.Millisecond) }))),
		hung(network("blackhole", func(w *world) { w.proxy.Blackhole() })),
		network("reset", func(w *world) { w.proxy.Reset() }),
		network("refused", func(w *world) { w.proxy.Refuse() }),
		server("out of memory", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
		server("read-only replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
		server("no permission", "ACL SETUSER default -eval -evalsha", "ACL SETUSER default +@all"),
		busy(), loading(), wrongPassword(), badCertificate(),
	}
}

// busy is another client's script that does not end. Redis says so after busy-reply-threshold.
func busy() fault {
	f := fault{name: "busy script", setup: setup{config: []string{"--lua-time-limit", "10"}}}
	f.on = func(tb testing.TB, w *world) {
		go func() { w.until <- w.admin.Eval(tb.Context(), "while true do end", nil).Err() }()
		eventually(tb, "the server is busy", slack, func() bool { return redis.HasErrorPrefix(w.admin.Ping(tb.Context()).Err(), "BUSY") })
	}
	f.off = func(tb testing.TB, w *world) {
		w.do(tb, "SCRIPT KILL")
		<-w.until // ends with an error: it was killed
	}
	return f
}

// loading is a server that starts with a dump, and is slow at reading it: Redis's own settings for tests.
func loading() fault {
	f := fault{name: "loading", setup: setup{config: []string{"--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"}}}
	f.on = func(tb testing.TB, w *world) {
		pipe := w.admin.Pipeline()
		for i := range 1000 {
			pipe.Set(tb.Context(), fmt.Sprint("filler:", i), fmt.Sprintf("%01024d", i*7919), 0)
		}
		if _, err := pipe.Exec(tb.Context()); err != nil {
			tb.Error(err)
		}
		w.do(tb, "CONFIG SET rdbcompression no")
		w.do(tb, "SAVE")
		w.server.Stop()
		go func() {
			w.server.Start(tb) // returns when the dump is read
			w.until <- nil
		}()
		eventually(tb, "the server is loading", slack, func() bool { return redis.HasErrorPrefix(w.admin.Ping(tb.Context()).Err(), "LOADING") })
	}
	f.off = func(_ testing.TB, w *world) { <-w.until }
	return f
}

func wrongPassword() fault {
	f := fault{name: "wrong password", setup: setup{options: func(o *redis.Options) { o.Password = "once right" }}}
	f.on = func(tb testing.TB, w *world) {
		w.do(tb, "ACL SETUSER default resetpass >other")
		w.do(tb, "CLIENT KILL TYPE normal SKIPME yes") // a connection that is authenticated stays so
	}
	f.off = func(tb testing.TB, w *world) { w.do(tb, "ACL SETUSER default nopass") }
	return f
}

func badCertificate() fault {
	return fault{
		name: "bad certificate", setup: setup{tls: true},
		on: func(_ testing.TB, w *world) {
			w.tls.bad.Store(true)
			w.proxy.Reset() // a connection that is made stays so
			w.proxy.Pass()
		},
		off: func(_ testing.TB, w *world) { w.tls.bad.Store(false) },
	}
}

// killed is a server that ends and comes back, empty as it keeps nothing: see TestKilledServer.
func killed() fault {
	return fault{
		name: "killed",
		on:   func(_ testing.TB, w *world) { w.server.Stop() },
		off:  func(tb testing.TB, w *world) { w.server.Start(tb) },
	}
}
