package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/keyfunc"
)

// maxLine is the longest line that is read. Longer ones are left out.
const maxLine = 64 << 10

// A source is how a log is read.
type source struct{ format, key, time, cost string }

// read reads all files, or stdin if there are none.
func (s source) read(files []string, stdin io.Reader, p *progress) (*traffic, error) {
	t := newTraffic()
	if len(files) == 0 {
		p.say("reading the standard input", 0)
		if err := s.readOne("the standard input", stdin, t); err != nil {
			return nil, err
		}
	}
	for _, name := range files {
		if err := s.readFile(name, t, p); err != nil {
			return nil, err
		}
	}
	if len(t.requests) == 0 {
		return nil, errors.New("there is no request: " + t.leftOut())
	}
	t.sort()
	return t, nil
}

func (s source) readFile(name string, t *traffic, p *progress) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return s.readOne(name, p.watch(f), t)
}

// readOne reads a log. What is damaged is read as far as possible.
func (s source) readOne(name string, from io.Reader, t *traffic) error {
	in := bufio.NewReaderSize(from, maxLine)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		in = bufio.NewReaderSize(unzipped, maxLine)
	}
	l := &lines{from: s, to: t}
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			t.lines++
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			t.skip(fmt.Sprintf("longer than %d bytes", maxLine))
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
		} else if line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff"))); len(line) > 0 {
			l.add(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			t.broken = append(t.broken, fmt.Sprintf("%s ends early: %v", name, err))
			return nil
		}
	}
}

// lines adds the lines of one log to the traffic.
type lines struct {
	from source
	to   *traffic

	format   format
	keys     []string // the fields that make the key
	key      []byte
	timeText []byte // the last one, and what it says: many are the same
	at       time.Time
}

// add adds a line, or counts why not.
func (l *lines) add(line []byte) {
	if l.format == nil && !l.begin(line) {
		return
	}
	if why := l.request(line); why != "" {
		l.to.skip(why)
	}
}

// begin chooses the format by the first line. It reports whether that is a request, and no header.
func (l *lines) begin(line []byte) bool {
	name := l.from.format
	if name == "" {
		name = guess(line)
	}
	l.format = formats[name]()
	if c, ok := l.format.(*commas); ok && !isNumber(l.from.key, l.from.time) {
		c.header(line)
		return false
	}
	return true
}

// isNumber reports whether fields are all given by their numbers.
func isNumber(fields ...string) bool {
	for each := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		if _, err := strconv.ParseUint(each, 10, 16); err != nil {
			return false
		}
	}
	return true
}

// request adds the request of a line, or returns why it cannot.
func (l *lines) request(line []byte) (why string) {
	if !l.format.parse(line) {
		return "not " + l.format.name()
	}
	text, _ := l.find(l.from.time, timeNames)
	if len(text) == 0 {
		return "without a time" + hint(l.from.time, "-time")
	}
	if !bytes.Equal(text, l.timeText) {
		at, ok := parseTime(string(text))
		if !ok {
			return "with a time that cannot be read" + hint(l.from.time, "-time")
		}
		l.at, l.timeText = at, append(l.timeText[:0], text...)
	}
	if !l.findKey() {
		return "without a key" + hint(l.from.key, "-key")
	}
	cost := int64(1)
	if l.from.cost != "" {
		var err error
		if cost, err = strconv.ParseInt(string(l.format.field(l.from.cost)), 10, 64); err != nil || cost < 0 {
			return "without a cost in " + strconv.Quote(l.from.cost)
		}
	}
	if cost == 0 {
		return "with a cost of 0, which is free"
	}
	l.to.add(l.at, l.key, cost)
	return ""
}

// findKey sets the key of the line. Logs write "-" where there is nothing.
func (l *lines) findKey() bool {
	if l.from.key == "" {
		value, name := l.find("", keyNames)
		l.key = append(l.key[:0], client(value)...)
		if len(l.key) == 0 || string(l.key) == "-" {
			return false
		}
		l.to.counted(name)
		return true
	}
	if l.keys == nil {
		l.keys = strings.Split(l.from.key, ",")
	}
	l.key = l.key[:0]
	for i, name := range l.keys {
		value := l.format.field(strings.TrimSpace(name))
		if len(value) == 0 || string(value) == "-" {
			return false
		}
		if i > 0 {
			l.key = append(l.key, ' ')
		}
		l.key = append(l.key, client(value)...)
	}
	l.to.counted(l.from.key)
	return true
}

// client returns an address as keyfunc.IP counts it: without a port, and of IPv6 the network. Other values stay.
func client(value []byte) []byte {
	if bytes.IndexByte(value, ':') < 0 {
		return value
	}
	addr, err := netip.ParseAddr(string(value))
	if err != nil {
		both, err := netip.ParseAddrPort(string(value))
		if err != nil {
			return value
		}
		addr = both.Addr()
	}
	return []byte(strings.TrimPrefix(keyfunc.ForIP(addr), "ip:"))
}

// find returns the field of a name, or if that is empty the first of the usual ones that there is, and its name.
func (l *lines) find(name string, usual []string) (value []byte, found string) {
	if name != "" {
		return l.format.field(name), name
	}
	for _, name := range usual {
		if value := l.format.field(name); len(value) > 0 {
			return value, name
		}
	}
	return nil, ""
}

func hint(given, name string) string {
	if given == "" {
		return " (" + name + " says which field it is)"
	}
	return " in " + strconv.Quote(given)
}

// The usual names of fields.
var (
	timeNames = []string{"time_local", "time", "ts", "timestamp", "@timestamp", "time_iso8601", "msec", "datetime", "date"}
	keyNames  = []string{
		"remote_addr", "client_ip", "remote_ip", "ip", "client", "request.client_ip", "request.remote_ip", "c-ip", "user", "key",
	}
)

var layouts = []string{
	"02/Jan/2006:15:04:05 -0700", time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700",
	"2006-01-02T15:04:05", time.DateTime,
}

// parseTime reads a time: as nginx writes it, of ISO 8601, or since 1970 in seconds, milliseconds,
// microseconds or nanoseconds, which its size tells. Without a zone it is UTC.
func parseTime(text string) (at time.Time, ok bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		switch {
		case n < 1e11:
			at = time.Unix(n, 0)
		case n < 1e14:
			at = time.UnixMilli(n)
		case n < 1e17:
			at = time.UnixMicro(n)
		default:
			at = time.Unix(0, n)
		}
		return at, valid(at)
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if seconds > 1e11 {
			seconds /= 1000
		}
		if !(seconds > 0 && seconds < 1e10) {
			return at, false
		}
		at = time.UnixMicro(int64(seconds*1e6 + 0.5))
		return at, valid(at)
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, valid(at)
		}
	}
	return at, false
}

// valid reports whether Replay takes a time.
func valid(at time.Time) bool { return at.Unix() >= 0 && at.UTC().Year() < 2200 }
