// Package runner carries out the turns of agents: package turns decides, and this package does what was decided.
//
// What comes in for an agent lies in the stream of turns, what was said on the conversation's transcript, and a wake has a process look at
// the conversation: when something has come in, when a call has ended, when it is time to ask a model again. That process takes the
// conversation's record, reads the transcript, and does what [turns.Next] says until there is nothing to do for now. A turn that waits for
// a call, for a person or for a model's server is held by no process: it costs only what is stored.
//
// Of two processes that carry on the same conversation the transcript lets one write; the other finds a conflict and stands down. The
// record only spares them the attempt. When a process dies, another takes over once its lease has ended, after some seconds.
package runner
