package adapter

import (
	"bytes"
	"strings"
)

// HeaderLines returns the values of a header in a header block, which is the part of a request
// between its first line and the empty line. The case of name does not matter. If a value continues
// on further lines, the returned value contains the line breaks. The values are slices of block,
// without the white space around them.
//
// HeaderLines is for adapters whose framework adds the trailer of a request's body to the headers. A
// client can put any header into the trailer.
func HeaderLines(block []byte, name string) (values [][]byte) {
	defer func() {
		for i, value := range values {
			values[i] = bytes.Trim(value, " \t\r\n")
		}
	}()
	var value []byte // the value to which the previous line belongs; nil if that line belongs to another header
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
