package main

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

//go:embed window.lua
var windowScript string

// rueidisWindow decides as rueidislimiter does, with the same client, one script and the clock of the process. It is
// a rewrite, because the module could not be downloaded. Like the original, it writes keys and arguments into a
// buffer that it reuses.
func rueidisWindow(w *setup) (limiter, error) {
	client, err := w.rueidis()
	script := rueidis.NewLuaScript(windowScript)
	return func() decide {
		var buffer []byte
		return func(ctx context.Context, key string) (bool, error) {
			const suffix = ":end"
			now := time.Now()
			buffer = append(append(append(append(buffer[:0], "window:{"...), key...), '}'), suffix...)
			end := len(buffer)
			buffer = strconv.AppendInt(buffer, now.UnixMilli(), 10)
			later := len(buffer)
			buffer = strconv.AppendInt(buffer, now.Add(w.limit.period).UnixMilli(), 10)
			text := rueidis.BinaryString(buffer)
			reply, err := script.Exec(ctx, client, []string{text[:end-len(suffix)], text[:end]},
				[]string{"1", text[end:later], text[later:]}).ToArray()
			if err != nil {
				return false, err
			}
			used, err := reply[0].ToInt64()
			return used <= w.limit.count, err
		}
	}, err
}

// rueidisIncr is INCR through the rueidis client, which pipelines automatically.
func rueidisIncr(w *setup) (limiter, error) {
	client, err := w.rueidis()
	return shared(func(ctx context.Context, key string) (bool, error) {
		return true, client.Do(ctx, client.B().Incr().Key(key).Build()).Error()
	}), err
}
