package check

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// RunParallel is for the TestMain of a package whose parallel tests mostly wait. Unless the command line sets the number,
// it runs n tests at a time instead of one for each processor.
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
