package main

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/keyfunc"
)

// maxLine is the length of the longest line that is read. Longer lines are left out.
const maxLine = 64 << 10

// A source describes how a log is read: its format, and the names of the fields.
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

// readOne reads one log. A damaged log is read as far as possible.
func (s source) readOne(name string, from io.Reader, t *traffic) error {
	in, err := plain(from)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	l := &lines{from: s, to: t, timeField: s.time, keyField: s.key}
	sample, _ := in.Peek(maxLine)
	if err := l.begin(bytes.Split(bytes.TrimPrefix(sample, []byte("\ufeff")), []byte("\n"))); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
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
		} else if line = bytes.TrimRight(bytes.TrimPrefix(line, []byte("\ufeff")), "\r\n"); len(bytes.TrimSpace(line)) > 0 {
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

// unreadable describes files that are not text, by their first bytes.
var unreadable = []struct{ magic, why string }{
	{"\x28\xb5\x2f\xfd", "it is compressed by zstd: give replay what \"zstd -dc\" prints"},
	{"\xfd7zXZ\x00", "it is compressed by xz: give replay what \"xz -dc\" prints"},
	{"PK\x03\x04", "it is a zip archive: give replay what \"unzip -p\" prints"},
	{"\xff\xfe", "it is UTF-16: give replay what \"iconv -f UTF-16 -t UTF-8\" prints"},
	{"\xfe\xff", "it is UTF-16: give replay what \"iconv -f UTF-16 -t UTF-8\" prints"},
}

// plain returns the text of a log, which may be compressed. The error says why a file cannot be read, and what to do.
func plain(from io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(from, maxLine)
	if begin, _ := in.Peek(3); bytes.HasPrefix(begin, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(unzipped, maxLine)
	} else if string(begin) == "BZh" {
		in = bufio.NewReaderSize(bzip2.NewReader(in), maxLine)
	}
	begin, _ := in.Peek(512)
	for _, each := range unreadable {
		if bytes.HasPrefix(begin, []byte(each.magic)) {
			return nil, errors.New(each.why)
		}
	}
	if len(begin) == 512 && bytes.Equal(begin[257:262], []byte("ustar")) {
		return nil, errors.New("it is a tar archive: give replay what \"tar -xOf\" prints")
	}
	return in, nil
}

// lines adds the lines of one log to a traffic.
type lines struct {
	from source
	to   *traffic

	format    format
	timeField string   // the field of the time; "" until a line has one
	keyField  string   // the field of the key, or several with commas between them; "" until a line has one
	keys      []string // the fields of keyField
	key       []byte   // of the last line
	timeText  []byte   // the text of the last time, whose value is at: many lines have the same text
	at        time.Time
}

// add adds the request of a line, or counts the line among those that are left out.
func (l *lines) add(line []byte) {
	switch f := l.format.(type) {
	case *commas:
		if f.header == nil && !isNumber(l.from.key, l.from.time) {
			f.begin(line)
			return
		}
	case *extended:
		if f.directive(line) {
			return
		}
	}
	if why := l.request(line); why != "" {
		l.to.skip(why, l.format.names()...)
	}
}

// begin chooses the format, and the fields that no flag names, from the first lines of a log.
func (l *lines) begin(sample [][]byte) error {
	name := l.from.format
	for _, line := range sample {
		if line = bytes.TrimSpace(line); name == "" && len(line) > 0 {
			name = guess(line)
		}
	}
	first := bytes.TrimSpace(bytes.Join(sample[:1], nil))
	if name == "" && bytes.ContainsAny(first, ",;\t") {
		name = "csv"
	}
	if name == "" && len(first) > 0 {
		return fmt.Errorf("replay does not know this format (-format has %s): its first line is %s", formatNames, excerpt(first))
	}
	if name == "" {
		name = "csv" // the log is empty
	}
	l.format = formats[name]()
	probe := &lines{from: l.from, to: newTraffic(), format: formats[name]()}
	var with [len(keyNames)]bool
	for _, line := range sample {
		if line = bytes.TrimRight(line, "\r"); len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if probe.add(line); probe.timeField != "" && l.timeField == "" {
			l.timeField = probe.timeField
		}
		for i, each := range keyNames {
			with[i] = with[i] || present(probe.format.field(each))
		}
	}
	if i := slices.Index(with[:], true); i >= 0 && l.keyField == "" {
		l.keyField = keyNames[i]
	}
	missing, flag := "", ""
	switch {
	case l.timeField == "":
		missing, flag = "a time that can be read", "-time"
	case l.keyField == "":
		missing, flag = "a client", "-key"
	}
	if c, ok := probe.format.(*commas); ok && len(first) > 0 && missing != "" && c.header != nil {
		return fmt.Errorf("it is taken for CSV, and no column of it has one of the usual names of %s (%s names it): its first line, which has the names, is %s",
			missing, flag, excerpt(first))
	}
	return nil
}

// excerpt returns the beginning of a line, for an error.
func excerpt(line []byte) string {
	const most = 100
	if len(line) > most {
		return strconv.Quote(string(line[:most])) + " …"
	}
	return strconv.Quote(string(line))
}

// present reports whether a field has a value. Logs write "-" for a missing value.
func present(value []byte) bool { return len(value) > 0 && string(value) != "-" }

// isNumber reports whether all fields are given by their numbers.
func isNumber(fields ...string) bool {
	for each := range strings.SplitSeq(strings.Join(fields, ","), ",") {
		if _, err := strconv.ParseUint(each, 10, 16); err != nil {
			return false
		}
	}
	return true
}

// request adds the request of a line, or returns why it cannot be added.
func (l *lines) request(line []byte) (why string) {
	if !l.format.parse(line) {
		return "not " + l.format.name()
	}
	if why := l.findTime(); why != "" {
		return why
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

// dateAndTime stands for the two fields "date" and "time".
const dateAndTime = "date and time"

// findTime sets the time of the line, or returns why the line has none.
func (l *lines) findTime() (why string) {
	names, found := timeNames[:], false
	if l.timeField != "" {
		names = []string{l.timeField}
	}
	for _, name := range names {
		text := l.format.field(name)
		if name == dateAndTime {
			date, clock := l.format.field("date"), l.format.field("time")
			text = append(append(append(make([]byte, 0, 32), date...), ' '), clock...)
			if !present(date) || !present(clock) {
				text = nil
			}
		}
		if !present(text) {
			continue
		}
		found = true
		if bytes.Equal(text, l.timeText) {
			return ""
		}
		if at, ok := parseTime(string(text)); ok {
			l.at, l.timeText, l.timeField = at, append(l.timeText[:0], text...), name
			return ""
		}
	}
	if !found {
		return "without a time" + hint(l.from.time, "-time")
	}
	return "with a time that cannot be read" + hint(l.from.time, "-time")
}

// findKey sets the key of the line, and reports whether the line has one.
func (l *lines) findKey() bool {
	if l.keyField == "" {
		for _, name := range keyNames {
			if present(l.format.field(name)) {
				l.keyField = name
				break
			}
		}
	}
	if l.keys == nil && l.keyField != "" {
		l.keys = strings.Split(l.keyField, ",")
		for i := range l.keys {
			l.keys[i] = strings.TrimSpace(l.keys[i])
		}
	}
	l.key = l.key[:0]
	for i, name := range l.keys {
		value := l.format.field(name)
		if !present(value) {
			return false
		}
		if i > 0 {
			l.key = append(l.key, ' ')
		}
		l.key = append(l.key, client(value)...)
	}
	if len(l.keys) > 0 {
		l.to.counted(l.keyField)
	}
	return len(l.key) > 0
}

// client returns an address as keyfunc.IP counts it: without a port, and the network of an IPv6 address. Other values are not changed.
func client(value []byte) []byte {
	if bytes.IndexByte(value, ':') < 0 {
		return value
	}
	addr, ok := address(value)
	if !ok {
		return value
	}
	return []byte(strings.TrimPrefix(keyfunc.ForIP(addr), "ip:"))
}

// hint says how to name the field that a line does not have.
func hint(given, flag string) string {
	if given != "" {
		return " in " + strconv.Quote(given)
	}
	return " (" + flag + " says which field it is)"
}

// These are the usual names of fields, in the order in which they are tried.
var (
	timeNames = [...]string{
		"time_local", "StartUTC", "time", "ts", "timestamp", "@timestamp", "EdgeStartTimestamp", "time_iso8601", "msec", "datetime", "date",
		dateAndTime,
	}
	keyNames = [...]string{
		"remote_addr", "client_ip", "remote_ip", "ip", "client", "request.client_ip", "request.remote_ip", "httpRequest.remoteIp", "ClientIP",
		"ClientHost", "c-ip", "user", "key",
	}
)

// layouts are the layouts of times that are read. The first one is nginx's.
var layouts = []string{
	"02/Jan/2006:15:04:05 -0700", time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -0700",
	"2006-01-02 15:04:05 UTC", "2006-01-02T15:04:05", time.DateTime,
}

// parseTime parses a time in nginx's format, in a format of ISO 8601, or as a number since 1970 in seconds, milliseconds,
// microseconds or nanoseconds, which are told apart by the size of the number. A time without a time zone is in UTC.
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

// valid reports whether a time can be the time of a request. A number that would be a time before 2000 is something else, such as how
// long a request took.
func valid(at time.Time) bool { return at.UTC().Year() >= 2000 && at.UTC().Year() < 2200 }
