// Package alert pages somebody when a Redis server is down: in each process once for each outage of a server, however many limiters use
// the server and however often it comes and goes. Close the limiters that you no longer need: one that was dropped without it may never
// tell that an outage is over.
package alert

import (
	"context"
	"sync"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A Pager observes limiters. Pass its method Observe to all limiters of the process:
//
//	pager := &alert.Pager{After: time.Minute, Calm: 30 * time.Second, Page: page}
//	lim := core.MustNew(rdb, "api", limit, core.Observe(pager.Observe))
type Pager struct {
	// After is how long an outage lasts until Page is called. Shorter outages page nobody.
	After time.Duration
	// Calm is how long a server must answer until its outage is over. A server that is down again before
	// that is still in the same outage. Calm must be shorter than After.
	Calm time.Duration
	// Page is called twice for an outage, with the address of the server: when the outage has lasted for
	// After, with the error with which it began, and when it is over, with nil. Calls are made one at a
	// time, so that nobody hears of the end of an outage before its beginning. A Page that never returns
	// stops all others: give it a timeout.
	Page func(server string, cause error)

	calls   sync.Mutex // held while Page is called, and while it is decided whether it is; locked before mu
	mu      sync.Mutex
	outages map[string]*outage // by the server's address
}

// An outage has one server.
type outage struct {
	server   string
	cause    error
	limiters map[string]int // how often the limiters of a name wait for the server
	page     *time.Timer
	over     *time.Timer // runs while no limiter waits
	paged    bool
}

// Observe is for core.Observe. It never waits for Page.
func (p *Pager) Observe(_ context.Context, e core.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind { //nolint:exhaustive // all others say nothing about a server that is down
	case core.EventFallbackOn:
		o := p.outages[e.Server]
		if o == nil {
			o = p.begin(e)
		}
		o.limiters[e.Limiter]++
		o.over.Stop()
	case core.EventFallbackOff: // one follows each EventFallbackOn
		o := p.endedBy(e)
		if o == nil {
			return
		}
		if o.limiters[e.Limiter]--; o.limiters[e.Limiter] == 0 {
			delete(o.limiters, e.Limiter)
		}
		if len(o.limiters) == 0 {
			o.over.Reset(p.Calm)
		}
	}
}

// begin notes a new outage.
func (p *Pager) begin(e core.Event) *outage {
	o := &outage{server: e.Server, cause: e.Err, limiters: map[string]int{}}
	o.page = time.AfterFunc(p.After, func() { p.page(o) })
	o.over = time.AfterFunc(p.Calm, func() { p.end(o) })
	if p.outages == nil {
		p.outages = map[string]*outage{}
	}
	p.outages[e.Server] = o
	return o
}

// endedBy returns the outage that is over for a limiter. After a failover by Sentinel the server that answers has another address
// than the one that was down: then it is the outage in which the limiter waits.
func (p *Pager) endedBy(e core.Event) *outage {
	if o := p.outages[e.Server]; o != nil && o.limiters[e.Limiter] > 0 {
		return o
	}
	for _, o := range p.outages {
		if o.limiters[e.Limiter] > 0 {
			return o
		}
	}
	return nil
}

// page calls Page unless the outage is over. While the server answers it waits: soon the outage is over, or goes on.
func (p *Pager) page(o *outage) {
	p.calls.Lock()
	defer p.calls.Unlock()
	p.mu.Lock()
	if len(o.limiters) == 0 {
		o.page.Reset(p.Calm)
		p.mu.Unlock()
		return
	}
	o.paged = p.outages[o.server] == o
	paged := o.paged
	p.mu.Unlock()
	if paged {
		p.Page(o.server, o.cause)
	}
}

// end ends an outage unless the server is down again.
func (p *Pager) end(o *outage) {
	p.calls.Lock()
	defer p.calls.Unlock()
	p.mu.Lock()
	over := len(o.limiters) == 0 && p.outages[o.server] == o
	if over {
		delete(p.outages, o.server)
		o.page.Stop()
	}
	paged := o.paged
	p.mu.Unlock()
	if over && paged {
		p.Page(o.server, nil)
	}
}
