package workers

import (
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// stuckPause is how long a call stays away from a worker that has too many runs that do not end.
const stuckPause = 10 * time.Second

// errStuck says that a worker takes no more calls until it is restarted.
var errStuck = schemas.OpErrorf(schemas.Unavailable, "run", "as many runs as this worker has slots do not end: restart it")

// stuck counts the runs that did not end with their context and were left to themselves. They hold no slot any
// more, but memory and perhaps a processor: beyond as many as there are slots, file tools run in boxes rather
// than in this process, and where boxes do not end either the worker takes no more calls.
type stuck struct {
	most    int
	changed func(n int)

	mu             sync.Mutex
	native, others int
}

// leaving is one run, which may be left to itself.
type leaving struct {
	native          bool
	over, abandoned bool // of stuck's mutex, like native
}

// inProcess says that a run is one of this process, before it begins.
func (s *stuck) inProcess(l *leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.native = true
}

// abandon counts a run from now on until it returns after all.
func (s *stuck) abandon(l *leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.abandoned = !l.over; l.abandoned {
		s.add(l, 1)
	}
}

// returned is the end of a run.
func (s *stuck) returned(l *leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.over = true; l.abandoned {
		s.add(l, -1)
	}
}

// add counts n more runs of l's kind. The caller has the mutex.
func (s *stuck) add(l *leaving, n int) {
	if l.native {
		s.native += n
	} else {
		s.others += n
	}
	s.changed(s.native + s.others)
}

// full reports whether there are too many: of the runs in this process, or of those at the provider.
func (s *stuck) full(native bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if native {
		return s.native >= s.most
	}
	return s.others >= s.most
}
