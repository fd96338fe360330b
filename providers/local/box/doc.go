// Package box makes the boxes of the local provider: a spawner, one per worker, that does every clone; an init, process 1 of each box, that
// builds what the box sees, drops every right and then starts runs; and the worker's side of talking to both, [Launch].
//
// The worker never clones a box by itself: its address space is large, which makes the kind of fork
// that a user namespace needs slow, and its packages take long to initialise. Spawner and init are
// the same small program, cmd/sandjet-box, or this one started again under that name (boxentry).
//
// Everything is tied to the worker by sockets: whatever ends it, a kill included, closes them, and
// spawner and boxes end at the end of their file.
//
// It imports the standard library (without net and crypto), golang.org/x/sys/unix and confine.
package box
