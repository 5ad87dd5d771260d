// Command replay shows what limits would have done to the requests of a log, and how large a limit
// should be:
//
//	go run ./_examples/replay -limit "token_bucket 100/1m" access.log
//
// It reads the combined format of nginx and Apache, JSON lines, the W3C's extended format of IIS and
// CloudFront, the logs of AWS's load balancers, and CSV, from files or the standard input, also
// compressed by gzip or bzip2. It prints tables, and with -o writes a page with pictures. Both contain keys
// of the log, which may be personal data. If you have no log, -generate makes one.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/redislimit/redislimit/core"
)

// A config contains the values of the flags.
type config struct {
	limits   limitFlags
	from     source
	deny     float64 // see analysis.deny
	top      int
	page     string
	generate int
}

// limitFlags contains the limits of all flags -limit.
type limitFlags []core.Limit

func (l *limitFlags) String() string { return "" }

func (l *limitFlags) Set(text string) error {
	limit, err := core.ParseLimit(text)
	if err != nil {
		return err
	}
	*l = append(*l, limit)
	return nil
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("replay: ")
	p := newProgress(os.Stderr)
	if err := run(os.Args[1:], os.Stdin, os.Stdout, p); err != nil {
		p.end()
		log.Fatal(err)
	}
}

// run is the program. Tests call it.
func run(args []string, stdin io.Reader, stdout io.Writer, p *progress) error {
	c, files, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if c.generate > 0 {
		out := bufio.NewWriter(stdout)
		err = generate(out, c.generate)
		return errors.Join(err, out.Flush())
	}
	t, err := c.from.read(files, stdin, p)
	if err != nil {
		return err
	}
	a, err := analyse(t, c, p)
	if err != nil {
		return err
	}
	p.end()
	if _, err := io.WriteString(stdout, a.text()); err != nil || c.page == "" {
		return err
	}
	return writePage(c.page, a)
}

func parseFlags(args []string) (c config, files []string, err error) {
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is shown once, without the list of flags
	flags.Var(&c.limits, "limit", "a `limit`, as in \"token_bucket 100/1m burst=200\"; may be given several times (default \"token_bucket 100/1m\")")
	flags.StringVar(&c.from.format, "format", "", formatNames+"; by default the first lines tell")
	flags.StringVar(&c.from.key, "key", "", "`field` of who is counted, or several with commas between them; by default the client's address, as keyfunc.IP counts it.\n"+
		"Of nginx: "+strings.Join(nginxFields[:], ", ")+".\nOf JSON a name, or names with dots between them; of CSV a name in the first line, or a number;\nof W3C a name in the line #Fields; of AWS: "+strings.Join(applicationFields, ", "))
	flags.StringVar(&c.from.time, "time", "", "`field` of the time, in JSON and CSV; by default one of the usual names")
	flags.StringVar(&c.from.cost, "cost", "", "`field` of the cost, such as body_bytes_sent; by default a request costs 1")
	flags.Float64Var(&c.deny, "deny", 0.1, "the smallest limits are to deny less than this `percentage`")
	flags.IntVar(&c.top, "top", 5, "how many of the keys that are denied most are shown")
	flags.StringVar(&c.page, "o", "", "writes a page with pictures to this `file`, such as replay.html")
	flags.IntVar(&c.generate, "generate", 0, "writes a log of so many `lines` in place of reading one: most clients are people, four are not")
	err = flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprint(os.Stderr, "usage: replay [flags] [file ...]; without a file it reads the standard input\n")
		flags.SetOutput(os.Stderr)
		flags.PrintDefaults()
	}
	if err != nil {
		return c, nil, err
	}
	if len(c.limits) == 0 {
		c.limits = limitFlags{core.TokenBucket(core.PerMinute(100))}
	}
	switch {
	case c.deny <= 0 || c.deny > 100:
		return c, nil, fmt.Errorf("-deny %v: want a percentage above 0, as in -deny 0.1", c.deny)
	case c.from.format != "" && formats[c.from.format] == nil:
		return c, nil, fmt.Errorf("-format %q: want "+formatNames, c.from.format)
	}
	for _, file := range flags.Args() {
		if strings.HasPrefix(file, "-") {
			return c, nil, fmt.Errorf("%s: flags come before the files", file)
		}
	}
	return c, flags.Args(), nil
}
