package check

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// RunParallel is what TestMain of a package calls whose parallel tests mostly wait: it has n of them run at a time, where
// the command line does not say how many, instead of one for each core.
func RunParallel(m *testing.M, n int) {
	flag.Parse()
	const name = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		_ = flag.Set(name, strconv.Itoa(n)) // the testing package has defined it
	}
	os.Exit(Run(m))
}
