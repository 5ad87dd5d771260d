package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
)

// TestScript checks that the printed script is the script that a client sends, except for the indentation.
func TestScript(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		levels []time.Duration
	}{
		{args: []string{"token_bucket 100/1m"}},
		{args: []string{"gcra 100/1m"}},
		{args: []string{"fixed_window 100/1h aligned"}},
		{args: []string{"fixed_window 100/day in=UTC"}},
		{args: []string{"sliding_window_log 5/1m"}},
		{args: []string{"sliding_window_counter 5/1m"}},
		{args: []string{"leaky_bucket 5/1m"}},
		{args: []string{"in_flight 5"}},
		{args: []string{"token_bucket 100/1m", "sliding_window_log 1000/24h", "in_flight 3"}},
		{[]string{"-ban", "10m,1h", "fixed_window 5/15m"}, []time.Duration{10 * time.Minute, time.Hour}},
	} {
		printed, err := script(c.args)
		if err != nil {
			t.Errorf("%v: got error %v, want none", c.args, err)
			continue
		}
		var options []core.Option
		for _, arg := range c.args {
			if limit, err := core.ParseLimit(arg); err == nil {
				options = append(options, limit)
			}
		}
		if c.levels != nil {
			options = append(options, core.Ban(c.levels...))
		}
		if got, want := flat(printed), flat(sent(t, options)); got != want {
			t.Errorf("%v: got the script\n%s\nwant the script that a client sends\n%s", c.args, got, want)
		}
		if !strings.HasSuffix(printed, "\nreturn reply\n") {
			t.Errorf("%v: got the end %q, want the last line without indentation", c.args, printed[len(printed)-40:])
		}
	}
}

// flat removes the white space at the beginnings and ends of lines.
func flat(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// sent returns the script that a client sends for a limiter with these options.
func sent(t *testing.T, options []core.Option) string {
	t.Helper()
	client := redisclient.New(t, &redis.Options{})
	seen := &seen{}
	client.AddHook(seen)
	_, _ = core.MustNew(client, "any", append(options, core.FailClosed())...).Peek(t.Context(), "k")
	return seen.script
}

// A seen is a hook in place of a server. It knows no script, and keeps the first script that it receives.
type seen struct{ script string }

type noScriptError struct{}

func (noScriptError) RedisError()   {}
func (noScriptError) Error() string { return "NOSCRIPT No matching script." }

func (*seen) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*seen) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (s *seen) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" && s.script == "" {
			s.script = cmd.Args()[1].(string)
		}
		cmd.SetErr(noScriptError{})
		return noScriptError{}
	}
}

// TestBatchScripts checks that each form has a different script, and that invalid arguments are refused.
func TestBatchScripts(t *testing.T) {
	t.Parallel()
	texts := map[string]bool{}
	for _, what := range []string{"call", "cluster", "mixed"} {
		text, err := script([]string{"-for", what, "token_bucket 100/1m"})
		if err != nil {
			t.Fatal(err)
		}
		texts[text] = true
	}
	if len(texts) != 3 {
		t.Errorf("got %d different scripts, want 3", len(texts))
	}
	for _, args := range [][]string{{}, {"token_bucket"}, {"-for", "nothing", "token_bucket 1/1s"}, {"-ban", "x", "token_bucket 1/1s"}} {
		if text, err := script(args); err == nil {
			t.Errorf("%q: got no error and %d bytes, want an error", args, len(text))
		}
	}
}
