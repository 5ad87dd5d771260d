package otellimit

import (
	"context"
	"errors"
	"net"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/redislimit/redislimit/core"
)

// The attributes of metrics and spans. Only errorTypeKey is one of OpenTelemetry's own.
const (
	limiterKey   attribute.Key = "redislimit.limiter.name"
	limitKey     attribute.Key = "redislimit.limit.name"
	capacityKey  attribute.Key = "redislimit.limit.capacity"
	remainingKey attribute.Key = "redislimit.limit.remaining"
	outcomeKey   attribute.Key = "redislimit.decision.outcome"
	sourceKey    attribute.Key = "redislimit.decision.source"
	causeKey     attribute.Key = "redislimit.ban.cause"
	stateKey     attribute.Key = "redislimit.breaker.state"
	errorTypeKey attribute.Key = "error.type"
)

// otherError is OpenTelemetry's error type for an error that has no type of its own.
const otherError = "_OTHER"

func limiterName(name string) attribute.KeyValue { return limiterKey.String(name) }

// An outcome is the value of the attribute redislimit.decision.outcome.
type outcome string

const (
	allowed outcome = "allowed"
	denied  outcome = "denied"
	banned  outcome = "banned"
	failed  outcome = "error"
)

func outcomeOf(e core.Event) outcome {
	switch {
	case e.Err != nil:
		return failed
	case e.Result.Allowed:
		return allowed
	case e.Result.Banned:
		return banned
	}
	return denied
}

// errorType returns the class of err as an attribute. It uses no text of err except a known code of Redis,
// because the text may contain a key.
func errorType(err error) attribute.KeyValue {
	return errorTypeKey.String(classify(err))
}

func classify(err error) string {
	var reply interface {
		error
		RedisError() // go-redis has this method on errors that the server replied
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
	return otherError
}

// replyType returns the code at the beginning of an error reply of Redis, if it is one of the known codes.
func replyType(reply string) string {
	switch code, _, _ := strings.Cut(reply, " "); code {
	case "ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "ERR", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH",
		"NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS", "WRONGTYPE":
		return code
	}
	return otherError
}
