package e2btest

import "github.com/sandjet/sandjet/providers/internal/servicetest"

// Fault is a failure that a test injects.
type Fault = servicetest.Fault

// The moments at which a connection is dropped.
const (
	Before = servicetest.Before // the request is read, and nothing is done
	After  = servicetest.After  // it was carried out, and the answer is lost
	Half   = servicetest.Half   // it was carried out, and half of the answer arrives
)

// Fail adds a fault, which applies f.Times times.
func (s *Service) Fail(f Fault) { s.faults.Add(f) }

// CutStreams breaks the connections of all clients that are attached to processes. Processes continue.
func (s *Service) CutStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.streams {
		t.cut()
	}
}
