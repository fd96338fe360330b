// Package lifecycle holds the state changes of calls, jobs, approvals and deliveries: each function is one change of
// docs/STATES.md. Any process may call it at any time, and again after a crash: the log decides, which takes the first write and refuses
// or recognises the second. The state of a call is read by streams.ReadCallState. There are no loops of services here and no goroutines.
package lifecycle
