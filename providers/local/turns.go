//go:build linux

package local

import "sync"

// turns is a lock per name. It is for work that waits for the disk: under the provider's lock a stalled disk would block every call. The
// zero value is ready.
type turns struct {
	mu    sync.Mutex
	names map[string]*turn
}

// turn is the lock of one name. It exists while a goroutine holds it or waits for it.
type turn struct {
	mu    sync.Mutex
	users int
}

// take locks a name and returns the function that unlocks it.
func (t *turns) take(name string) (done func()) {
	t.mu.Lock()
	if t.names == nil {
		t.names = map[string]*turn{}
	}
	n := t.names[name]
	if n == nil {
		n = &turn{}
		t.names[name] = n
	}
	n.users++
	t.mu.Unlock()
	n.mu.Lock()
	return func() {
		n.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if n.users--; n.users == 0 {
			delete(t.names, name)
		}
	}
}
