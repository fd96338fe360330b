// Package proptest checks properties of random values with rapid, so that the short form of tests gives the same answer each time.
package proptest

import (
	"flag"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/longtest"
)

// seeded sets rapid's seed where neither the command line nor the long form asks for another.
var seeded = sync.OnceFunc(func() { //nolint:gochecknoglobals // rapid has one seed for the process
	f := flag.Lookup("rapid.seed")
	if f.Value.String() != f.DefValue || longtest.Asked() {
		return
	}
	if err := f.Value.Set(strconv.Itoa(1)); err != nil {
		panic(err)
	}
})

// Check is [rapid.Check] with values that are the same each time in the short form, and new ones in the long form. When a property does
// not hold, rapid says how to repeat it.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	seeded()
	rapid.Check(t, property)
}
