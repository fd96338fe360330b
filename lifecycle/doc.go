// Package lifecycle holds the state changes of calls, jobs, approvals and deliveries: docs/STATES.md as verbs. A verb may be called
// by any process at any time, and again after a crash: each is decided by the log, which takes the first and refuses or recognises
// the second. How a call stands is read by streams.ReadCallState. There are no loops of services here and no goroutines.
package lifecycle
