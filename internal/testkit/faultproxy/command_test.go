package faultproxy

import (
	"slices"
	"strings"
	"testing"
)

// TestScanner checks that the scanner finds the commands in a stream, however the stream is cut into chunks, and gives up
// streams that are not RESP.
func TestScanner(t *testing.T) {
	t.Parallel()
	const stream = "*3\r\n$3\r\nset\r\n$1\r\nk\r\n$8\r\n*1\r\n$0\r\n\r\n" + "\r\nping  x\r\n" + "*2\r\n$7\r\nEvalSha\r\n$0\r\n\r\n*0\r\n*1\r\n$4\r\nQUIT\r\n"
	want := []string{"SET", "PING", "EVALSHA", "QUIT"}
	for size := 1; size <= len(stream); size++ {
		var s scanner
		var got []string
		for chunk := range slices.Chunk([]byte(stream), size) {
			got = append(got, s.feed(chunk)...)
		}
		if !slices.Equal(got, want) || s.lost {
			t.Errorf("in chunks of %d bytes: got the commands %q, want %q", size, got, want)
		}
	}
	for _, other := range []string{"\x16\x03\x01hello", "*x\r\n$1\r\na\r\n", "*1\r\n$-1\r\n", "*1\r\nPING\r\n", strings.Repeat("a", longest+1)} {
		var s scanner
		if got := s.feed([]byte(other + "\r\n*1\r\n$4\r\nPING\r\n")); len(got) > 0 || !s.lost {
			t.Errorf("after %.20q: got the commands %q, want the stream given up", other, got)
		}
	}
}
