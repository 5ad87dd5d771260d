package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// An event is sent to the page. Its SSE event name is the name of the type, and its data is JSON.
type event interface{ name() string }

// hello is the first event of a stream. It contains the id of the page's session.
type hello struct {
	ID     string  `json:"id"`
	Period float64 `json:"period"` // ms
	Config config  `json:"config"`
	At     float64 `json:"at"` // ms since the Unix epoch, by Redis's clock, like all times

	Lanes []described `json:"lanes"` // in the order of the page
}

// described contains the properties of a lane that the page needs to draw it.
type described struct {
	Name    string `json:"name"`
	Group   string `json:"group"`
	Bucket  bool   `json:"bucket"`  // whether its capacity is the burst
	Delays  bool   `json:"delays"`  // whether it holds admitted requests until their turn
	Windows bool   `json:"windows"` // whether it counts in windows, which begin at multiples of the period
	Slots   bool   `json:"slots"`   // whether an admitted request is in flight until its work ends
	Second  bool   `json:"second"`  // whether it has a second limit
	Members int    `json:"members"` // how many processes it shows; 0 for one
}

// changed reports a new configuration, and when it takes effect.
type changed struct {
	Config config            `json:"config"`
	At     float64           `json:"at"`
	Code   map[string]string `json:"code"` // a Go program with the limit, by lane
}

// An outage reports that the page has "stopped" or "started" Redis, that the
// limiters have "noticed" that Redis does not answer, or that the outage is "over" because Redis answers them again.
type outage struct {
	State string  `json:"state"`
	At    float64 `json:"at"`
}

// A decision is a limiter's decision on one request.
type decision struct {
	Lane    string  `json:"lane"`
	Client  string  `json:"client"`
	By      string  `json:"by"` // "traffic", or "hand" for a request that the user has sent
	At      float64 `json:"at"`
	Allowed bool    `json:"allowed"`
	Delay   float64 `json:"delay"`  // ms
	Used    float64 `json:"used"`   // units, including this request; -1 if nothing is counted, or the client is banned
	Also    float64 `json:"also"`   // how much of a second limit is used, from 0 to 1; -1 as for Used
	Second  bool    `json:"second"` // whether the second limit denied the request
	Member  int     `json:"member"` // the process that decided, from 1; 0 in lanes of one process
	Banned  float64 `json:"banned"` // ms until the ban ends; 0 if the client is not banned
	Source  string  `json:"source"`
}

// counted reports how many decisions of a lane with leases were made since the last event of this
// type, by where they were made.
type counted struct {
	Lane   string  `json:"lane"`
	At     float64 `json:"at"`
	Leased int64   `json:"leased"` // in this process, from leased units
	Redis  int64   `json:"redis"`  // by Redis
	Other  int64   `json:"other"`  // by the outage policy
}

// A response is the response to one request of the traffic.
type response struct {
	Lane   string   `json:"lane"`
	Client string   `json:"client"`
	By     string   `json:"by"`
	Status int      `json:"status"`
	Header []string `json:"header"`
	Body   string   `json:"body"`
}

// levels reports how much of each limit is used by a client, also between decisions.
type levels struct {
	Client string           `json:"client"`
	Levels map[string]level `json:"levels"` // by lane
}

// A level says how much of a limit was used at an instant, and how long a ban
// lasts, in the units of a decision.
type level struct {
	At     float64 `json:"at"`
	Used   float64 `json:"used"`
	Also   float64 `json:"also"`
	Banned float64 `json:"banned"`
}

func (hello) name() string    { return "hello" }
func (changed) name() string  { return "changed" }
func (outage) name() string   { return "outage" }
func (decision) name() string { return "decision" }
func (response) name() string { return "response" }
func (levels) name() string   { return "levels" }
func (counted) name() string  { return "counted" }

// pageTimeout is how long a page may take to read events.
const pageTimeout = 10 * time.Second

// send writes events to a page until done is closed or the page does not read them in time.
func send(w http.ResponseWriter, events <-chan event, done <-chan struct{}) error {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	var buf bytes.Buffer
	for {
		select {
		case <-done:
			return nil
		case e := <-events:
			writeEvent(&buf, e)
		}
		for range len(events) { // the events that are already waiting are sent in the same packet
			writeEvent(&buf, <-events)
		}
		if err := out.SetWriteDeadline(time.Now().Add(pageTimeout)); err != nil {
			return err
		}
		if _, err := buf.WriteTo(w); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// writeEvent writes one event. The JSON contains no line breaks, so it fits into one data
// line.
func writeEvent(buf *bytes.Buffer, e event) {
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // not reached: events contain only strings and finite numbers
	}
	buf.WriteString("event: " + e.name() + "\ndata: ")
	buf.Write(data)
	buf.WriteString("\n\n")
}
