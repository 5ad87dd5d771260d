package adapter

import (
	"bytes"
	"strings"
)

// HeaderLines returns the values of a header in a header block, which is the part of a request
// between its first line and the empty line. name is in any case. If a value continues on further
// lines, the returned value contains the line ends. The values are slices of block, without the
// space around them.
//
// HeaderLines is for adapters whose framework mixes the headers of a request with the trailer of
// its body, in which a client may add any header.
func HeaderLines(block []byte, name string) (values [][]byte) {
	defer func() {
		for i, value := range values {
			values[i] = bytes.Trim(value, " \t\r\n")
		}
	}()
	var value []byte // the value of the previous line, if that line is called name
	for at := 0; at < len(block); {
		end := len(block)
		if i := bytes.IndexByte(block[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := block[at:end]
		at = end
		switch {
		case line[0] == '\n' || string(line) == "\r\n":
			return values
		case line[0] == ' ' || line[0] == '\t':
			if value != nil {
				value = block[end-len(line)-len(value) : end]
				values[len(values)-1] = value
			}
		case len(line) > len(name) && line[len(name)] == ':' && strings.EqualFold(string(line[:len(name)]), name):
			value = line[len(name)+1:]
			values = append(values, value)
		default:
			value = nil
		}
	}
	return values
}
