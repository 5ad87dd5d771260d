package conformance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

func TestMemory(t *testing.T) {
	conformance.All(t, conformance.Runs(t), func(t *testing.T, run func(*testing.T, conformance.Store)) {
		synctest.Test(t, func(t *testing.T) {
			run(t, conformance.Store{New: core.NewMemory, Advance: time.Sleep, ForgetsByClock: true})
		})
	})
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	conformance.All(t, conformance.Runs(t), func(t *testing.T, run func(*testing.T, conformance.Store)) {
		run(t, conformance.OnRedis(t, client))
	})
}
