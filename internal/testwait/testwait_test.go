package testwait

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
)

// failing notes whether it was failed.
type failing struct {
	testing.TB

	failed bool
}

func (*failing) Helper() {}

func (f *failing) Fatal(...any) { f.failed = true; runtime.Goexit() }

func (f *failing) Fatalf(string, ...any) { f.Fatal() }

// fails reports whether a test that does f fails.
func fails(t *testing.T, f func(testing.TB)) bool {
	tb := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(tb)
	}()
	<-done
	return tb.failed
}

func TestWhatFailsATest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		for name, c := range map[string]struct {
			f    func(testing.TB)
			want bool
		}{
			"it holds in a while": {func(tb testing.TB) { Eventually(tb, "", func() bool { looks++; return looks > 3 }) }, false},
			"it never holds":      {func(tb testing.TB) { Eventually(tb, "", func() bool { return false }) }, true},
			"no error":            {func(tb testing.TB) { OK(tb, nil) }, false},
			"an error":            {func(tb testing.TB) { OK(tb, errors.New("no")) }, true},
			"a value": {func(tb testing.TB) {
				if Must(7, nil)(tb) != 7 {
					t.Error("it is another")
				}
			}, false},
			"no value": {func(tb testing.TB) { Must(7, errors.New("no"))(tb) }, true},
		} {
			if got := fails(t, c.f); got != c.want {
				t.Errorf("%s: fails %t", name, got)
			}
		}
	})
}
