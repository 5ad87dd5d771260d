package adapter

import (
	"bytes"
	"strings"
)

// HeaderLines returns the values of the header called name, in upper or lower case, that a header
// block has: the lines of a request between the first one and an empty one. A value that is
// continued on a further line has the line end in it. The values are parts of block.
//
// It is for adapters whose framework does not tell the headers of a request from the trailer of its
// body, which any client may write.
func HeaderLines(block []byte, name string) (values [][]byte) {
	defer func() {
		for i, value := range values {
			values[i] = bytes.Trim(value, " \t\r\n")
		}
	}()
	var value []byte // that of the line before, if it is called name
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
