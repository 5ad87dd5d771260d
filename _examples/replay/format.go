package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// A format is how a line has its fields.
type format interface {
	name() string
	parse(line []byte) bool   // until the next line
	field(name string) []byte // nil if there is none
}

var formats = map[string]func() format{
	"nginx": func() format { return &combined{} },
	"json":  func() format { return &object{} },
	"csv":   func() format { return &commas{} },
}

// guess returns the format of a line.
func guess(line []byte) string {
	switch {
	case line[0] == '{':
		return "json"
	case (&combined{}).parse(line):
		return "nginx"
	}
	return "csv"
}

// combined is the combined format of nginx and Apache. What follows the bytes may be missing.
type combined struct{ fields [9][]byte }

// nginxFields are its fields, by nginx's names.
var nginxFields = []string{
	"remote_addr", "remote_user", "time_local", "request", "status", "body_bytes_sent", "http_referer", "http_user_agent", "path",
}

func (c *combined) name() string { return "of the combined format" }

func (c *combined) parse(line []byte) bool {
	c.fields = [9][]byte{}
	var user, request, rest []byte
	var ok [5]bool
	c.fields[0], rest, ok[0] = bytes.Cut(line, []byte(" "))
	user, rest, ok[1] = bytes.Cut(rest, []byte(" ["))
	c.fields[2], rest, ok[2] = bytes.Cut(rest, []byte(`] "`))
	if _, c.fields[1], ok[3] = bytes.Cut(user, []byte(" ")); !ok[3] {
		return false
	}
	request, rest, ok[4] = quoted(rest)
	if !ok[0] || !ok[1] || !ok[2] || !ok[4] || len(c.fields[2]) < len("02/Jan/2006:15:04:05") {
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
		c.fields[5] = []byte("0") // Apache's
	}
	for i := 6; i < 8; i++ {
		if rest = bytes.TrimPrefix(rest, []byte(" ")); len(rest) > 0 && rest[0] == '"' {
			c.fields[i], rest, _ = quoted(rest[1:])
		}
	}
	return true
}

// quoted returns what is before the next quote that no backslash escapes, and what is after it.
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

// object is a line of JSON.
type object struct{ fields map[string]json.RawMessage }

func (o *object) name() string { return "a JSON object" }

func (o *object) parse(line []byte) bool {
	o.fields = nil
	return json.Unmarshal(line, &o.fields) == nil && o.fields != nil
}

func (o *object) field(name string) []byte { return value(o.fields, name) }

// value returns a string without its quotes, a number, true or false. Dots lead into an object.
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

// commas is a line of CSV, with commas, semicolons or tabs, whichever is first. A value may be in quotes, but no line
// break may be in it.
type commas struct {
	names  []string
	comma  byte
	fields [][]byte
}

func (c *commas) name() string { return "CSV" }

func (c *commas) header(line []byte) {
	if !c.parse(line) {
		return
	}
	for _, name := range c.fields {
		c.names = append(c.names, strings.ToLower(string(bytes.TrimSpace(name))))
	}
}

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

// endOfQuotes returns where the quote is that ends the one at the beginning; two of them are one of the value.
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
	for i, each := range c.names {
		if each == strings.ToLower(name) && i < len(c.fields) {
			return bytes.TrimSpace(c.fields[i])
		}
	}
	return nil
}
