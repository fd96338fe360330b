// Package boxrun runs one command in a sandbox that offers only a program's standard input and outputs, as container engines do. A small
// shell program in the sandbox starts the command, kills all its processes on request, and reports how it ended.
//
// # Why a program
//
// Closing the stream of a container engine does not end the processes in the sandbox, and most engines have no call that does. The program
// kills them on a message on its standard input, and also when that ends: then the worker has died, and the command's output will never be
// read. If a network failure to the engine hides the end of the input, the command is ended when no worker can be waiting for it any more.
//
// # Protocol
//
// The worker writes a line of settings, then the variables, the script and its input. Nothing is started yet: the program responds "ready"
// and waits for "go". After that the worker may write "term", which sends SIGTERM to all processes of the command, and "kill". At the end
// the program writes "end" with the exit code. It writes every message on both outputs, as a line that begins with \001 and a secret
// number. Bytes before "end" on an output belong to the command; what a background process prints after it is dropped.
//
// # How the command's processes are found
//
// They have a file lock limit of their own (RLIMIT_LOCKS, which kernels have ignored since 2.4): a random number that children inherit,
// whatever session, group or environment they create. A process that lowers the limit further is not found; only the end of the sandbox
// ends it.
//
// No part of a command, neither its script nor its variables nor its input, is in the arguments or settings that an engine stores. The
// program and the command run as the same user: the command can forge messages, but affects only its own result.
package boxrun
