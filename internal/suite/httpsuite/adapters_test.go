package httpsuite_test

import (
	"testing"

	"github.com/redislimit/redislimit/internal/suite/httpsuite"
)

// Each of these tests runs the suite with one framework.
func TestNetHTTP(t *testing.T) { httpsuite.Exercise(t, netHTTP()) }
func TestGin(t *testing.T)     { httpsuite.Exercise(t, ginFramework()) }
func TestEcho(t *testing.T)    { httpsuite.Exercise(t, echoFramework()) }
func TestFiber(t *testing.T)   { httpsuite.Exercise(t, fiberFramework()) }

// Each of these tests makes clients leave, with the frameworks that notice it.
func TestLeaversNetHTTP(t *testing.T) { httpsuite.Leavers(t, netHTTP()) }
func TestLeaversGin(t *testing.T)     { httpsuite.Leavers(t, ginFramework()) }
func TestLeaversEcho(t *testing.T)    { httpsuite.Leavers(t, echoFramework()) }
