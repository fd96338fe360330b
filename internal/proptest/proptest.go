// Package proptest checks properties of random values with rapid. In the short form of tests the values are always the same, so that
// results are reproducible.
package proptest

import (
	"flag"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/longtest"
)

// seeded sets a fixed seed of rapid, unless the command line sets one or the long form is enabled.
var seeded = sync.OnceFunc(func() { //nolint:gochecknoglobals // rapid has one seed for the process
	f := flag.Lookup("rapid.seed")
	if f.Value.String() != f.DefValue || longtest.Asked() {
		return
	}
	if err := f.Value.Set(strconv.Itoa(1)); err != nil {
		panic(err)
	}
})

// Check is [rapid.Check], with the same values each time in the short form and new ones in the long form. If a property does not hold,
// rapid prints how to repeat the case.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	seeded()
	rapid.Check(t, property)
}
