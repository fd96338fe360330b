package e2btest

import "github.com/sandjet/sandjet/providers/internal/servicetest"

// Fault is something that goes wrong.
type Fault = servicetest.Fault

// The moments at which a connection is dropped.
const (
	Before = servicetest.Before // the request is read, and nothing is done
	After  = servicetest.After  // it was carried out, and the answer is lost
	Half   = servicetest.Half   // it was carried out, and half of the answer arrives
)

// Fail makes something go wrong. A fault that is used up is gone.
func (s *Service) Fail(f Fault) { s.faults.Add(f) }

// CutStreams breaks the connections of all clients that are attached to processes. The processes continue.
func (s *Service) CutStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.streams {
		t.cut()
	}
}
