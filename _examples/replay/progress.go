package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A progress is a progress bar on a terminal. If it is nil, nothing is shown.
type progress struct {
	out  io.Writer
	last time.Time
}

// newProgress returns a progress that writes to a file, or nil if the file is not a terminal.
func newProgress(f *os.File) *progress {
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progress{out: f}
}

// say shows what the program does, and the fraction that is done, from 0 to 1. A fraction of 0 means that it is unknown. The bar is redrawn at
// most ten times per second.
func (p *progress) say(what string, done float64) {
	if p == nil || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last = time.Now()
	bar := ""
	if done > 0 {
		full := int(20 * min(done, 1))
		bar = fmt.Sprintf(" [%s%s] %.0f %%", strings.Repeat("#", full), strings.Repeat(".", 20-full), 100*min(done, 1))
	}
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%.60s%s", what, bar)
}

// end removes the bar.
func (p *progress) end() {
	if p != nil {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// watch returns a reader of f that shows how much of f has been read.
func (p *progress) watch(f *os.File) io.Reader {
	info, err := f.Stat()
	if p == nil || err != nil {
		return f
	}
	return &watched{Reader: f, p: p, what: "reading " + f.Name(), size: info.Size()}
}

// A watched reader shows how much of a file has been read.
type watched struct {
	io.Reader

	p          *progress
	what       string
	read, size int64
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	w.read += int64(n)
	w.p.say(w.what, float64(w.read)/float64(max(w.size, 1)))
	return n, err
}
