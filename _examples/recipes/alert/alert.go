// Package alert pages somebody when a Redis server is down: once per process for each outage of a server, however many limiters use
// the server and however often it comes and goes. Close the limiters that you no longer need: a limiter that is dropped without Close
// may never report the end of an outage.
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
	// After is how long an outage must last until Page is called. Nobody is paged for shorter outages.
	After time.Duration
	// Calm is how long a server must answer until its outage is over. If a server is down again before
	// that, the same outage continues. Calm must be shorter than After.
	Calm time.Duration
	// Page is called twice for an outage, with the address of the server: when the outage has lasted for
	// After, with the error with which the outage began, and when the outage is over, with nil. Calls are made
	// one at a time, so that the end of an outage is never reported before its beginning. A Page that never
	// returns stops all others: give it a timeout.
	Page func(server string, cause error)

	calls   sync.Mutex // held while Page is called, and while the pager decides whether to call it; locked before mu
	mu      sync.Mutex
	outages map[string]*outage // by the server's address
}

// An outage is a time in which a server is down.
type outage struct {
	server   string
	cause    error
	limiters map[string]int // how many limiters of each name wait for the server
	page     *time.Timer    // calls Page
	over     *time.Timer    // ends the outage; runs while no limiter waits
	paged    bool           // whether Page was called
}

// Observe is the observer to pass to core.Observe. It never waits for Page.
func (p *Pager) Observe(_ context.Context, e core.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind { //nolint:exhaustive // other events are not about the state of a server
	case core.EventFallbackOn:
		o := p.outages[e.Server]
		if o == nil {
			o = p.begin(e)
		}
		o.limiters[e.Limiter]++
		o.over.Stop()
	case core.EventFallbackOff: // follows each EventFallbackOn
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

// begin records a new outage.
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

// endedBy returns the outage that is over for a limiter. After a failover by Sentinel, the server that answers has another address
// than the server that was down. The outage is then the one in which the limiter waits.
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

// page calls Page, unless the outage is over. If the server answers at the moment, page waits for Calm: by then, the outage is over, or
// the server is down again.
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
