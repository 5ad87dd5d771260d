package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
)

// maxBody is the size, in bytes, of the largest accepted body.
const maxBody = 64 << 10

// posted is the body of a POST. Key, ID or Parts names the key.
type posted struct {
	Limiter string `json:"limiter"`
	Key     string `json:"key"`
	ID      []byte `json:"id"` // the key in base64, whatever its bytes are
	Parts   []part `json:"parts"`
	For     string `json:"for"` // the duration of a block, such as "1h30m"
}

// actions are the things that can be done to a key, by name.
var actions = map[string]func(ctx context.Context, l *core.Limiter, key string, d time.Duration) error{
	"lookup": func(context.Context, *core.Limiter, string, time.Duration) error { return nil },
	"reset": func(ctx context.Context, l *core.Limiter, key string, _ time.Duration) error {
		return l.Reset(ctx, key)
	},
	"block": func(ctx context.Context, l *core.Limiter, key string, d time.Duration) error {
		return l.Block(ctx, key, d)
	},
	"unblock": func(ctx context.Context, l *core.Limiter, key string, _ time.Duration) error {
		return l.Unblock(ctx, key)
	},
}

// act carries out the posted action, logs it unless it only looks the key up, and replies with the state of
// the key afterwards.
func (h *handler) act(w http.ResponseWriter, r *http.Request, name string) {
	var (
		p   posted
		d   time.Duration
		key string
	)
	l, err := h.read(w, r, &p)
	if err == nil {
		key, err = h.watch.keyPosted(p)
	}
	if err == nil && name == "block" {
		d, err = time.ParseDuration(p.For)
	}
	if err == nil {
		err = actions[name](r.Context(), l, key, d)
		if name != "lookup" {
			logDone(r, l, name, key, d, err)
		}
	}
	var s state
	if err == nil {
		s, err = stateOf(r.Context(), l, key)
	}
	if err != nil {
		reply(w, statusOf(err), map[string]string{"error": err.Error()})
		return
	}
	reply(w, http.StatusOK, s)
}

func logDone(r *http.Request, l *core.Limiter, name, key string, d time.Duration, err error) {
	attrs := []any{"limiter", l.Name(), "peer", r.RemoteAddr, "key", key}
	if d != 0 {
		attrs = append(attrs, "for", d)
	}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	l.Logger().Log(r.Context(), slog.LevelInfo, "redislimit: admin: "+name, attrs...)
}

// A refusal is an error with the HTTP status of its response.
type refusal struct {
	status int
	text   string
}

func (e refusal) Error() string { return e.text }

func statusOf(err error) int {
	var refused refusal
	switch {
	case errors.As(err, &refused):
		return refused.status
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// read reads the body into p, and returns the limiter that the body names. It accepts only JSON, because
// other sites cannot make a browser post JSON here: a form cannot post it, and before a browser lets a
// script of another site post it, the browser asks this server, which does not permit it.
func (h *handler) read(w http.ResponseWriter, r *http.Request, p *posted) (*core.Limiter, error) {
	if err := h.origin.Check(r); err != nil {
		return nil, refusal{http.StatusForbidden, err.Error()}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refusal{http.StatusUnsupportedMediaType, "want Content-Type: application/json"}
	}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(p); err != nil {
		return nil, err
	}
	seen := (*h.watch.byName.Load())[p.Limiter]
	if seen == nil {
		return nil, refusal{http.StatusNotFound, fmt.Sprintf("no limiter is called %.80q", p.Limiter)}
	}
	return seen.limiter, nil
}

// keyPosted returns the key that p names.
func (w *Watch) keyPosted(p posted) (string, error) {
	switch {
	case p.Key != "":
		return p.Key, nil
	case len(p.ID) > 0:
		return string(p.ID), nil
	}
	return w.keyOf(p.Parts)
}

// A state is the state of a key. Durations are in seconds; -1 means never.
type state struct {
	Limiter    string       `json:"limiter"`
	Key        string       `json:"key"`
	ID         []byte       `json:"id"`
	At         time.Time    `json:"at"` // by the clock of whatever made the decision: see Source
	Source     string       `json:"source"`
	Allowed    bool         `json:"allowed"` // whether a request of cost 1 would be allowed
	RetryAfter float64      `json:"retryAfter"`
	Banned     *time.Time   `json:"bannedUntil,omitempty"`
	Limits     []limitState `json:"limits"` // empty if FailOpen admits everything
}

type limitState struct {
	Limit      string  `json:"limit"`
	Allowed    bool    `json:"allowed"`
	Unlimited  bool    `json:"unlimited,omitempty"` // if true, the fields below are not set
	Capacity   int64   `json:"capacity"`
	Remaining  int64   `json:"remaining"`
	Held       int64   `json:"held"` // how many of the used units are only reserved; for InFlight, how many slots are taken; 0 if unknown, see stateOf
	RetryAfter float64 `json:"retryAfter"`
	ResetAfter float64 `json:"resetAfter"`
}

// stateOf returns the state of a key. It is not known what is held during a ban, or while Redis does not
// answer. Held is then 0, and the page says nothing about it.
func stateOf(ctx context.Context, l *core.Limiter, key string) (state, error) {
	res, err := l.Peek(ctx, key)
	if err != nil {
		return state{}, err
	}
	s := state{
		Limiter: l.Name(), Key: key, ID: []byte(key), At: res.At, Source: res.Source.String(),
		Allowed: res.Allowed, RetryAfter: seconds(res.RetryAfter), Limits: []limitState{},
	}
	if res.Banned {
		until := res.At.Add(res.RetryAfter)
		s.Banned = &until
	}
	if res.Source == core.SourceNone {
		return s, nil
	}
	var held map[string]int64
	if res.Source != core.SourceFallback {
		if held, err = inside.Core.HeldOf(ctx, l, key); err != nil {
			return state{}, err
		}
	}
	byName := make(map[string]core.Result)
	for each := range res.All() {
		byName[each.LimitName] = each
	}
	for _, limit := range l.Limits() {
		each, decides := byName[limit.Name()]
		switch {
		case limit == core.Unlimited():
			s.Limits = append(s.Limits, limitState{Limit: limit.String(), Allowed: !res.Banned, Unlimited: true})
		case decides: // a limit beside one of 0 decides nothing, and is left out
			s.Limits = append(s.Limits, limitState{
				limit.String(), each.Allowed, false, each.Limit, each.Remaining, held[each.LimitName], seconds(each.RetryAfter), seconds(each.ResetAfter),
			})
		}
	}
	return s, nil
}

func seconds(d time.Duration) float64 {
	if d == core.Never {
		return -1
	}
	return d.Seconds()
}
