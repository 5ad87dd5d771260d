package otellimit

import (
	"context"
	"errors"
	"net"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/redislimit/redislimit/core"
)

// The attributes, on metrics and spans alike. Only errorTypeKey is OpenTelemetry's own.
const (
	limiterKey   attribute.Key = "redislimit.limiter.name"
	limitKey     attribute.Key = "redislimit.limit.name"
	remainingKey attribute.Key = "redislimit.limit.remaining"
	outcomeKey   attribute.Key = "redislimit.decision.outcome"
	sourceKey    attribute.Key = "redislimit.decision.source"
	stateKey     attribute.Key = "redislimit.breaker.state"
	errorTypeKey attribute.Key = "error.type"
)

// other is OpenTelemetry's type of an error that has no name.
const other = "_OTHER"

func limiterName(name string) attribute.KeyValue { return limiterKey.String(name) }

// An outcome is what a decision came to.
type outcome string

const (
	allowed outcome = "allowed"
	denied  outcome = "denied"
	failed  outcome = "error"
)

func outcomeOf(e core.Event) outcome {
	switch {
	case e.Err != nil:
		return failed
	case e.Result.Allowed:
		return allowed
	}
	return denied
}

// errorType classifies err in few words: its text may hold anything.
func errorType(err error) attribute.KeyValue {
	return errorTypeKey.String(classify(err))
}

func classify(err error) string {
	var reply interface {
		error
		RedisError() // go-redis marks so what a server replied
	}
	var timeout interface{ Timeout() bool }
	var network net.Error
	switch {
	case errors.Is(err, core.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, &reply):
		return replyType(reply.Error())
	case errors.As(err, &network):
		return "connection"
	}
	return other
}

// replyType is the code that Redis's reply begins with, if it is one of those that
// an operator does something about.
func replyType(reply string) string {
	switch code, _, _ := strings.Cut(reply, " "); code {
	case "ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "ERR", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH",
		"NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS", "WRONGTYPE":
		return code
	}
	return other
}
