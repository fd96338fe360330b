// Package boxrun runs one command in a box that is reached by nothing but a program's standard input and outputs, as engines offer it: a
// small shell program in the box starts the command, ends all that it has started on a word, and reports how it ended.
//
// # Why a program
//
// Closing the stream of an engine does not end what runs in the box, and most engines have no call that does. The program does, by a word
// on its standard input, and also when that ends: then the worker has died, and the output of the command will never be read. Where the end
// cannot be seen, for the network to the engine is cut, the command ends when no worker can be waiting for it any more.
//
// # What is said
//
// The worker writes one line of settings, then the variables, the script and its input. Nothing has happened by then: the program answers
// "ready" and waits for "go". After that the worker may write "term", which asks all that the command has started to end, and "kill". At
// the end the program says "end" with the exit code. It says everything on both outputs, as a line that begins with \001 and a secret
// number: what comes before "end" on an output is the command's, and what a process in the background prints after it is dropped.
//
// # How the command's processes are known
//
// They have a limit of their own for file locks (RLIMIT_LOCKS, which kernels have not heeded since 2.4): a random number that
// children inherit whatever session, group or environment they make for themselves. A process that
// lowers it further is not found; only the end of the box ends that one.
//
// Nothing of a command, neither its script nor its variables nor its input, is in the arguments or settings that an
// engine keeps. The program and the command have the same user: what is said may be forged by the command, to the harm
// of its own result only.
package boxrun
