package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A format finds the fields of a line.
type format interface {
	name() string
	parse(line []byte) bool   // the fields are valid until the next call
	field(name string) []byte // nil if there is none
	names() []string          // the names of the line's fields, or nil if each line has the same ones
}

var formats = map[string]func() format{
	"nginx": func() format { return &combined{} },
	"json":  func() format { return &object{} },
	"w3c":   func() format { return &extended{} },
	"aws":   func() format { return &balancer{} },
	"csv":   func() format { return &commas{} },
}

const formatNames = "nginx, json, w3c, aws or csv"

// guess returns the format of a line, or "" if the line may be CSV, or has a format that this program does not know.
func guess(line []byte) string {
	switch {
	case line[0] == '{' && (&object{}).parse(line):
		return "json"
	case line[0] == '#':
		return "w3c"
	case (&combined{}).parse(line):
		return "nginx"
	case (&balancer{}).parse(line):
		return "aws"
	}
	return ""
}

// combined is a line of the combined format of nginx and Apache. Any text may precede it, such as the prefixes of syslog, Docker and
// Kubernetes. The fields after the number of bytes may be missing.
type combined struct{ fields [len(nginxFields)][]byte }

// nginxFields are its fields, by nginx's names. The last one is only in the format "main" of nginx's packages.
var nginxFields = [...]string{
	"remote_addr", "remote_user", "time_local", "request", "status", "body_bytes_sent", "http_referer", "http_user_agent", "path",
	"http_x_forwarded_for",
}

func (c *combined) name() string { return "of the combined format" }

func (c *combined) parse(line []byte) bool {
	c.fields = [len(nginxFields)][]byte{}
	before, at, rest, found := cutTime(line)
	if !found {
		return false
	}
	c.fields[2] = at
	if c.fields[0], c.fields[1], found = who(before); !found {
		return false
	}
	request, rest, found := quoted(rest)
	if !found {
		return false
	}
	c.fields[3] = request
	if _, target, found := bytes.Cut(request, []byte(" ")); found {
		target, _, _ = bytes.Cut(target, []byte(" "))
		c.fields[8], _, _ = bytes.Cut(target, []byte("?"))
	}
	c.fields[4], rest, _ = bytes.Cut(bytes.TrimPrefix(rest, []byte(" ")), []byte(" "))
	c.fields[5], rest, _ = bytes.Cut(rest, []byte(" "))
	if string(c.fields[5]) == "-" {
		c.fields[5] = []byte("0") // Apache writes "-" for 0
	}
	for _, i := range []int{6, 7, 9} {
		if rest = bytes.TrimPrefix(rest, []byte(" ")); len(rest) > 0 && rest[0] == '"' {
			c.fields[i], rest, _ = quoted(rest[1:])
		}
	}
	// Each proxy appends the address that it sees, so the last address is the client of the nearest proxy.
	c.fields[9] = bytes.TrimSpace(c.fields[9][bytes.LastIndexByte(c.fields[9], ',')+1:])
	return true
}

// cutTime finds the time of a combined line: ` [16/Nov/2026:10:00:00 +0100] "`. The name of a user cannot contain a quote, so
// nobody can forge a time in it.
func cutTime(line []byte) (before, at, after []byte, found bool) {
	const shortest = len("02/Jan/2006:15:04:05")
	for from := 0; ; {
		i := bytes.Index(line[from:], []byte(" ["))
		if i < 0 {
			return nil, nil, nil, false
		}
		before, rest := line[:from+i], line[from+i+2:]
		if end := bytes.IndexByte(rest, ']'); end >= shortest && rest[2] == '/' && bytes.HasPrefix(rest[end:], []byte(`] "`)) {
			return before, rest[:end], rest[end+3:], true
		}
		from += i + 2
	}
}

// who returns the client's address and the user of a combined line. The last three words before the time are the address,
// an identity and the user. If the name of a user contains blanks, the address is the nearest word further to the left that is
// an address and is followed by the identity "-".
func who(before []byte) (addr, user []byte, found bool) {
	if bytes.Count(before, []byte(" ")) == 2 { // as in most logs
		addr, rest, _ := bytes.Cut(before, []byte(" "))
		return addr, rest[bytes.IndexByte(rest, ' ')+1:], len(addr) > 0
	}
	words := bytes.Fields(before)
	at := len(words) - 3
	if at < 0 {
		return nil, nil, false
	}
	if _, ok := address(words[at]); !ok {
		for i := at - 1; i >= 0; i-- {
			if _, ok := address(words[i]); ok && string(words[i+1]) == "-" {
				at = i
				break
			}
		}
	}
	if user = words[at+2]; at+3 < len(words) {
		user = bytes.Join(words[at+2:], []byte(" "))
	}
	return words[at], user, true
}

// address parses an address, with or without a port.
func address(text []byte) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(string(bytes.Trim(text, "[]"))); err == nil {
		return addr, true
	}
	both, err := netip.ParseAddrPort(string(text))
	return both.Addr(), err == nil
}

// quoted returns the text before the next quote that is not escaped by a backslash, and the text after it.
func quoted(text []byte) (value, rest []byte, found bool) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return text[:i], text[i+1:], true
		}
	}
	return nil, nil, false
}

func (c *combined) field(name string) []byte {
	for i, each := range nginxFields {
		if each == name {
			return c.fields[i]
		}
	}
	return nil
}

func (c *combined) names() []string { return nil }

// object is a line of JSON. Docker stores the line that a program has written in the field "log". The fields are then those of that
// inner line, and missing fields are looked up in Docker's own fields.
type object struct {
	fields map[string]json.RawMessage
	within format // the line in Docker's "log", or nil
}

func (o *object) name() string { return "a JSON object" }

func (o *object) parse(line []byte) bool {
	o.fields, o.within = nil, nil
	if json.Unmarshal(line, &o.fields) != nil || o.fields == nil {
		return false
	}
	if _, ofDocker := o.fields["stream"]; ofDocker {
		o.parseLog(bytes.TrimSpace(value(o.fields, "log")))
	}
	return true
}

func (o *object) parseLog(line []byte) {
	if len(line) == 0 {
		return
	}
	var within format = &combined{}
	if line[0] == '{' {
		var fields map[string]json.RawMessage
		if json.Unmarshal(line, &fields) == nil {
			o.within = &object{fields: fields}
		}
		return
	}
	if within.parse(line) {
		o.within = within
	}
}

func (o *object) field(name string) []byte {
	if o.within != nil {
		if found := o.within.field(name); len(found) > 0 {
			return found
		}
	}
	return value(o.fields, name)
}

func (o *object) names() []string { return slices.Sorted(maps.Keys(o.fields)) }

// value returns the value of a field: a string without its quotes, a number, true or false. Dots in the name lead into an object.
func value(fields map[string]json.RawMessage, name string) []byte {
	raw, ok := fields[name]
	if !ok {
		outer, inner, found := strings.Cut(name, ".")
		var within map[string]json.RawMessage
		if !found || json.Unmarshal(fields[outer], &within) != nil {
			return nil
		}
		return value(within, inner)
	}
	switch raw[0] {
	case '{', '[', 'n': // n is null
		return nil
	case '"':
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return nil
		}
		return []byte(text)
	}
	return raw
}

// extended is a line of the W3C's extended log format, as IIS and CloudFront write it. A line "#Fields:" names the fields of the lines
// after it, which are separated by blanks or tabs. Source: https://www.w3.org/TR/WD-logfile.html
type extended struct {
	header []string
	fields [][]byte
}

func (e *extended) name() string { return "of the W3C's extended format" }

// directive reports whether a line is a directive, which begins with "#", and reads the directive "#Fields:".
func (e *extended) directive(line []byte) bool {
	if fields, ok := bytes.CutPrefix(line, []byte("#Fields:")); ok {
		e.header = strings.Fields(strings.ToLower(string(fields)))
	}
	return line[0] == '#'
}

func (e *extended) parse(line []byte) bool {
	if bytes.IndexByte(line, '\t') >= 0 {
		e.fields = bytes.Split(line, []byte("\t"))
	} else {
		e.fields = bytes.Fields(line)
	}
	return len(e.fields) == len(e.header)
}

func (e *extended) field(name string) []byte {
	if i := slices.Index(e.header, strings.ToLower(name)); i >= 0 && i < len(e.fields) && string(e.fields[i]) != "-" {
		return e.fields[i]
	}
	return nil
}

func (e *extended) names() []string { return e.header }

// balancer is a line of an AWS load balancer: an application load balancer, or a classic one. Sources:
// https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html and
// https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html
type balancer struct {
	header []string
	fields [][]byte
}

// applicationFields and classicFields are the names of the fields up to the user agent, in all versions of the formats.
var (
	applicationFields = strings.Fields("type time elb client target request_processing_time target_processing_time response_processing_time " +
		"elb_status_code target_status_code received_bytes sent_bytes request user_agent")
	classicFields = strings.Fields("time elb client backend request_processing_time backend_processing_time response_processing_time " +
		"elb_status_code backend_status_code received_bytes sent_bytes request user_agent")
)

func (b *balancer) name() string { return "of an AWS load balancer" }

func (b *balancer) parse(line []byte) bool {
	if b.header, b.fields = classicFields, words(line, b.fields[:0]); len(b.fields) > 3 && bytes.HasPrefix(b.fields[2], []byte("app/")) {
		b.header = applicationFields
	}
	if len(b.fields) < len(b.header)-1 { // old classic balancers write no user agent
		return false
	}
	_, err := time.Parse(time.RFC3339, string(b.field("time")))
	_, ok := address(b.field("client"))
	return err == nil && ok
}

func (b *balancer) field(name string) []byte {
	if i := slices.Index(b.header, name); i >= 0 && i < len(b.fields) {
		return b.fields[i]
	}
	return nil
}

func (b *balancer) names() []string { return nil }

// words appends the words of a line to found. Blanks within quotes do not separate words.
func words(line []byte, found [][]byte) [][]byte {
	for {
		line = bytes.TrimLeft(line, " ")
		switch {
		case len(line) == 0:
			return found
		case line[0] == '"':
			value, rest, ok := quoted(line[1:])
			if !ok {
				return found
			}
			found, line = append(found, value), rest
		default:
			value, rest, _ := bytes.Cut(line, []byte(" "))
			found, line = append(found, value), rest
		}
	}
}

// commas is a line of CSV. The separator is a comma, a semicolon or a tab: the one that comes first. A value may be quoted, but may
// not contain a line break.
type commas struct {
	header []string
	comma  byte
	fields [][]byte
}

func (c *commas) name() string { return "CSV" }

// begin reads the first line, which contains the names of the columns.
func (c *commas) begin(line []byte) {
	if !c.parse(line) {
		return
	}
	for _, name := range c.fields {
		c.header = append(c.header, strings.ToLower(string(bytes.TrimSpace(name))))
	}
}

func (c *commas) names() []string { return c.header }

func (c *commas) parse(line []byte) bool {
	if c.comma == 0 {
		c.comma = ','
		if i := bytes.IndexAny(line, ",;\t"); i >= 0 {
			c.comma = line[i]
		}
	}
	c.fields = c.fields[:0]
	for {
		if len(line) > 0 && line[0] == '"' {
			end := endOfQuotes(line)
			if end < 0 {
				return false
			}
			c.fields = append(c.fields, bytes.ReplaceAll(line[1:end], []byte(`""`), []byte(`"`)))
			if line = line[end+1:]; len(line) == 0 {
				return true
			}
			if line[0] != c.comma {
				return false
			}
			line = line[1:]
			continue
		}
		value, rest, more := bytes.Cut(line, []byte{c.comma})
		c.fields = append(c.fields, value)
		if !more {
			return true
		}
		line = rest
	}
}

// endOfQuotes returns the index of the quote that ends the value that the first quote begins. Two quotes within it stand for one.
func endOfQuotes(line []byte) int {
	for i := 1; i < len(line); i++ {
		if line[i] != '"' {
			continue
		}
		if i+1 == len(line) || line[i+1] != '"' {
			return i
		}
		i++
	}
	return -1
}

func (c *commas) field(name string) []byte {
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(c.fields) {
		return bytes.TrimSpace(c.fields[n-1])
	}
	for i, each := range c.header {
		if each == strings.ToLower(name) && i < len(c.fields) {
			return bytes.TrimSpace(c.fields[i])
		}
	}
	return nil
}
