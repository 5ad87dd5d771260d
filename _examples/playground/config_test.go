package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestReadConfig checks which changes are accepted, and the errors for others.
func TestReadConfig(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ body, wrong string }{
		{`{}`, ""},
		{`{"rate":40,"burst":20,"traffic":60,"shape":"steady"}`, ""},
		{`{"rate":2,"burst":1,"traffic":1,"shape":"clients","ban":true}`, ""},
		{`{"rate":41}`, "rate is 41: allowed is 2 to 40"},
		{`{"rate":-1}`, "rate is -1"},
		{`{"burst":0}`, "burst is 0: allowed is 1 to 20"},
		{`{"cost":6}`, "cost is 6: allowed is 1 to 5"},
		{`{"traffic":61}`, "traffic is 61: allowed is 1 to 60"},
		{`{"traffic":1e30}`, "not the JSON of a configuration"},
		{`{"shape":"square"}`, `shape is "square": allowed are steady, bursts, boundary, clients, hand`},
		{`{"rats":1}`, "unknown field"},
		{`{} {}`, "more than one"},
		{``, "not the JSON"},
	} {
		c, err := readConfig(strings.NewReader(test.body), defaults())
		switch {
		case test.wrong == "" && err != nil:
			t.Errorf("%s: got error %v, want none", test.body, err)
		case test.wrong == "":
			if err := c.validate(); err != nil {
				t.Errorf("%s: the accepted configuration is not valid: %v", test.body, err)
			}
		case err == nil || !strings.Contains(err.Error(), test.wrong):
			t.Errorf("%s: got error %v, want one that contains %q", test.body, err, test.wrong)
		}
	}
	if c, err := readConfig(strings.NewReader(`{"rate":20}`), defaults()); err != nil || c.Rate != 20 || c.Traffic != defaults().Traffic {
		t.Errorf("a change of the rate alone: got %+v, %v; want the rate 20, and other values unchanged", c, err)
	}
}

// TestPageHasTheSameBounds compares the controls of the page with the values that the server accepts.
func TestPageHasTheSameBounds(t *testing.T) {
	t.Parallel()
	page, err := web.ReadFile("web/index.html")
	if err != nil {
		t.Fatal(err)
	}
	d := defaults()
	for _, s := range shapes() {
		if !strings.Contains(string(page), fmt.Sprintf(`name="shape" value="%s"`, s)) {
			t.Errorf("the page has no control for the shape %s", s)
		}
	}
	for _, want := range []string{
		fmt.Sprintf(`name="rate" min="%d" max="%d" value="%d"`, minRate, maxRate, d.Rate),
		fmt.Sprintf(`name="burst" min="%d" max="%d" value="%d"`, minBurst, maxBurst, d.Burst),
		fmt.Sprintf(`name="traffic" min="%d" max="%d" value="%d"`, minTraffic, maxTraffic, d.Traffic),
		fmt.Sprintf(`name="cost" min="%d" max="%d" value="%d"`, minCost, maxCost, d.Cost),
		fmt.Sprintf(`value="%s" checked`, d.Shape),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
}
