// Script prints the Lua script that Redis runs for a limiter, with its comments as it is sent, but indented.
//
//	go run ./internal/tools/script 'token_bucket 100/1m'
//	go run ./internal/tools/script -ban 10m,1h 'fixed_window 5/15m' 'in_flight 2'
//	go run ./internal/tools/script -for cluster 'token_bucket 100/1m' # the script of a batch on a node of a Cluster
//	go run ./internal/tools/script -for mixed 'token_bucket 100/1m'   # the script of a batch of limiters that With made
//
// The script does not contain the numbers of the limits, because they are passed as arguments. On a single server, a
// batch uses the same script as one call.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
)

func main() {
	text, err := script(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Print(text)
}

// script returns the script of the limiter that the arguments describe.
func script(args []string) (string, error) {
	flags := flag.NewFlagSet("script", flag.ContinueOnError)
	bans := flags.String("ban", "", "the `levels` of core.Ban, as in 10m,1h")
	what := flags.String("for", "call", "`what` it is sent for: call, cluster or mixed")
	if err := flags.Parse(args); err != nil {
		return "", err
	}
	var options []core.Option
	for _, text := range flags.Args() {
		limit, err := core.ParseLimit(text)
		if err != nil {
			return "", err
		}
		options = append(options, limit)
	}
	if *bans != "" {
		var levels []time.Duration
		for text := range strings.SplitSeq(*bans, ",") {
			level, err := time.ParseDuration(text)
			if err != nil {
				return "", err
			}
			levels = append(levels, level)
		}
		options = append(options, core.Ban(levels...))
	}
	var client core.Client = redis.NewClient(&redis.Options{})
	if *what == "cluster" {
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:6379"}})
	}
	lim, err := core.New(client, "any", options...)
	if err != nil {
		return "", err
	}
	call, batch, mixed := inside.Core.Scripts(lim)
	text, ok := map[string]string{"call": call, "cluster": batch, "mixed": mixed}[*what]
	if !ok {
		return "", errors.New("-for takes call, cluster or mixed")
	}
	return indented(text), nil
}

// token matches the words that change the indentation, and comments and strings that may contain such words. A line
// that begins with closing words is indented like the line that they close.
var (
	token   = regexp.MustCompile(`--.*|'[^']*'|"[^"]*"|\b(?:function|if|do|repeat|end|until)\b|[{}()]`)
	closer  = regexp.MustCompile(`\b(?:end|until|else|elseif)\b|[})]`)
	closers = regexp.MustCompile(`^(?:(?:\b(?:end|until|else|elseif)\b|[})])\s*)+`)
)

// depths is the change of indentation for the lines after a token. for and while are not listed, because their do
// counts.
var depths = map[string]int{"function": 1, "if": 1, "do": 1, "repeat": 1, "{": 1, "(": 1, "end": -1, "until": -1, "}": -1, ")": -1}

// indented indents a Lua text that consists of several parts, each line by its depth in the whole.
func indented(text string) string {
	var b strings.Builder
	depth := 0
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			at := depth - len(closer.FindAllString(closers.FindString(line), -1))
			b.WriteString(strings.Repeat("  ", max(at, 0)) + line)
		}
		b.WriteString("\n")
		for _, word := range token.FindAllString(line, -1) {
			depth += depths[word]
		}
	}
	return b.String()
}
