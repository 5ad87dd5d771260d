package planted

import (
	"os"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

func TestMain(m *testing.M) { os.Exit(check.Run(m)) }
