// Package confine takes rights away from the process that calls it: capabilities, new privileges,
// system calls, files, resources. None of it can be undone, so it runs in the process that is to
// become the box, never in the worker. Each function does one thing and says whether it was done;
// none of them weakens anything quietly.
//
// Most of what the kernel keeps here is kept per thread, and a Go program has several. The functions
// act on all threads, those included that the Go runtime started itself. The kernel interface that
// makes this possible does not exist in a program that is linked with cgo: there they return
// [ErrCgo] and change nothing. Such a program locks a goroutine to its thread, uses the functions
// that end in Thread, and executes a program: an exec keeps only the thread that calls it.
//
// An order that works: [Rlimits], [DropCapabilities], [NoNewPrivs], [Dumpable], [Landlock], [Seccomp].
//
// It imports the standard library (without net and crypto) and golang.org/x/sys/unix only: it is
// part of a program that is started for every box.
package confine
