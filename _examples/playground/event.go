package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// An event is sent to the page. Its SSE name is that of the type, its data is JSON.
type event interface{ name() string }

// hello is the first event. It has the id of the page's session.
type hello struct {
	ID     string  `json:"id"`
	Period float64 `json:"period"` // ms
	Config config  `json:"config"`
	At     float64 `json:"at"` // by Redis's clock, like all instants: ms since the Unix epoch

	Lanes []described `json:"lanes"` // in the order of the page
}

// described is what the page must know of a lane to draw it.
type described struct {
	Name    string `json:"name"`
	Group   string `json:"group"`
	Bucket  bool   `json:"bucket"`  // its capacity is the burst
	Delays  bool   `json:"delays"`  // it holds what it admits until its turn has come
	Windows bool   `json:"windows"` // it counts in windows, which begin at multiples of the period
	Slots   bool   `json:"slots"`   // what it admits is in flight until its work ends
	Second  bool   `json:"second"`  // it has a second limit
	Members int    `json:"members"` // how many processes it shows; 0 for one
}

// changed reports a new configuration, and when it took effect.
type changed struct {
	Config config            `json:"config"`
	At     float64           `json:"at"`
	Code   map[string]string `json:"code"` // a Go program with the limit, by lane
}

// An outage reports that Redis was "stopped" or "started" by the page, or that the
// limiters have "noticed" it, or that it is "over" because Redis answers them again.
type outage struct {
	State string  `json:"state"`
	At    float64 `json:"at"`
}

// A decision is a limiter's decision on one request.
type decision struct {
	Lane    string  `json:"lane"`
	Client  string  `json:"client"`
	By      string  `json:"by"` // "traffic" or "hand"
	At      float64 `json:"at"`
	Allowed bool    `json:"allowed"`
	Delay   float64 `json:"delay"`  // ms
	Used    float64 `json:"used"`   // units, including this request; -1 if nobody counts, or the client is banned
	Also    float64 `json:"also"`   // how much of a second limit is used, from 0 to 1; like Used
	Second  bool    `json:"second"` // that limit has denied it
	Member  int     `json:"member"` // the process that has decided, from 1; 0 in lanes of one process
	Banned  float64 `json:"banned"` // ms, how long still; 0 if the client is not banned
	Source  string  `json:"source"`
}

// counted reports how many decisions of a lane with leases were made since the last such
// event, by who made them.
type counted struct {
	Lane   string  `json:"lane"`
	At     float64 `json:"at"`
	Leased int64   `json:"leased"` // this process, which has leased units
	Redis  int64   `json:"redis"`
	Other  int64   `json:"other"` // the outage policy
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

// levels reports how much of each limit is used, also between decisions.
type levels struct {
	Client string           `json:"client"`
	Levels map[string]level `json:"levels"` // by lane
}

// A level is how much of a limit was used at an instant, in units, or for how long a ban
// goes on; like those of a decision.
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

// pageTimeout is how long a page may take to read the events.
const pageTimeout = 10 * time.Second

// send writes events to a page until done is closed or the page does not read.
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
		for range len(events) { // the events that are waiting, in the same packet
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

// writeEvent writes one event. The JSON has no line breaks, so it fits into one data
// line.
func writeEvent(buf *bytes.Buffer, e event) {
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // not reached: strings and finite numbers
	}
	buf.WriteString("event: " + e.name() + "\ndata: ")
	buf.Write(data)
	buf.WriteString("\n\n")
}
