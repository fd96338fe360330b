package testwait

import (
	"strings"
	"sync"
	"testing"
)

// kinds prevents tests of virtual time and of real time from running concurrently in a process. The NATS client has one pool of timers for
// the process, and a timer that was created in a bubble must not be used in another bubble or outside.
var kinds = newKindLock() //nolint:gochecknoglobals // the pool is the process's, too

// ForRealTime is for a test that connects to NATS in real time. It waits until no [Alone] runs, and delays others until the test has
// ended.
func ForRealTime(t testing.TB) {
	t.Helper()
	kinds.enter(t)
}

// Alone runs f, which connects to NATS in virtual time, while neither another Alone nor a test with [ForRealTime] runs.
func Alone(t testing.TB, f func()) {
	t.Helper()
	kinds.alone(t, f)
}

// kindLock admits any number of tests of real time, or one bubble. A test of real time waits for running bubbles only, not for waiting
// ones, so that it may enter more than once.
type kindLock struct {
	mu     sync.Mutex
	left   *sync.Cond
	bubble bool
	real   map[string]int // number of entries, by the test's name
}

func newKindLock() *kindLock {
	l := &kindLock{real: map[string]int{}}
	l.left = sync.NewCond(&l.mu)
	return l
}

// enter waits until no bubble runs, and delays bubbles until the test has ended.
func (l *kindLock) enter(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bubble {
		l.left.Wait()
	}
	name := t.Name()
	l.real[name]++
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.real[name]--; l.real[name] == 0 {
			delete(l.real, name)
		}
		l.left.Broadcast()
	})
}

// alone runs f, a bubble, while no other bubble and no test of real time runs. Parents of this test do not count: they wait for it.
func (l *kindLock) alone(t testing.TB, f func()) {
	t.Helper()
	l.mu.Lock()
	for l.bubble || l.others(t.Name()) {
		l.left.Wait()
	}
	l.bubble = true
	l.mu.Unlock()
	defer func() { // deferred, as the test may end in f
		l.mu.Lock()
		defer l.mu.Unlock()
		l.bubble = false
		l.left.Broadcast()
	}()
	f()
}

// others reports whether a test of real time runs that is neither the named one nor a parent of it. The caller holds the lock.
func (l *kindLock) others(name string) bool {
	for other := range l.real {
		if name != other && !strings.HasPrefix(name, other+"/") {
			return true
		}
	}
	return false
}
