package outage

import (
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

func TestMain(m *testing.M) { check.RunParallel(m, 6) }
