package faultproxy

import (
	"bytes"
	"strconv"
	"strings"
)

const longest = 1 << 10 // the longest header line; longer inline commands are not expected

// scanner finds the names of the commands in a client's stream, however the stream is cut into chunks. It skips the
// arguments.
type scanner struct {
	line  []byte // the received part of a header line
	name  []byte // the received part of a name
	args  int    // how many arguments of the command will follow
	named bool   // the command's name has been read
	skip  int    // how many bytes of the argument will follow
	lost  bool   // the stream is not RESP
}

// feed returns the names of commands that are complete with this chunk, in upper case.
func (s *scanner) feed(chunk []byte) []string {
	var names []string
	for len(chunk) > 0 && !s.lost {
		if s.skip > 0 {
			n := min(s.skip, len(chunk))
			if !s.named {
				s.name = append(s.name, chunk[:n]...)
			}
			chunk, s.skip = chunk[n:], s.skip-n
			if s.skip > 0 {
				break
			}
			s.args--
			if !s.named {
				names = append(names, strings.ToUpper(string(bytes.TrimSpace(s.name))))
				s.name, s.named = s.name[:0], true
			}
			continue
		}
		line, rest, whole := bytes.Cut(chunk, []byte("\n"))
		s.line = append(s.line, line...)
		if s.lost = len(s.line) > longest; !whole || s.lost {
			break
		}
		if inline := s.header(string(bytes.TrimSpace(s.line))); inline != "" {
			names = append(names, inline)
		}
		chunk, s.line = rest, s.line[:0]
	}
	return names
}

// header reads a line outside the arguments, and returns the name of the command if it is an inline command ("PING").
func (s *scanner) header(line string) string {
	if s.args == 0 {
		words := strings.Fields(line)
		switch {
		case len(words) == 0: // Redis ignores an empty line
		case line[0] == '*':
			s.args, s.named = s.number(line), false
		case line[0] >= 'A' && line[0] <= 'z':
			return strings.ToUpper(words[0])
		default:
			s.lost = true
		}
		return ""
	}
	if s.lost = !strings.HasPrefix(line, "$"); !s.lost {
		s.skip = s.number(line) + len("\r\n")
	}
	return ""
}

func (s *scanner) number(line string) int {
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 {
		s.lost = true
	}
	return n
}
