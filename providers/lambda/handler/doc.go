// Package handler is the program in the functions of the provider lambda: it runs one command for each invocation, in the one
// execution environment that it is in.
//
// # A command
//
// The variables of a command are made from nothing, so that the credentials of the function are not among them. It is started by
// this same program under another name ([Entry]), which first takes from itself what the command is not to reach: by Landlock all
// files but those of the system, the scratch folder and its own workspace; by seccomp sockets, where the command has no network,
// and what a sandbox does not need of the kernel.
//
// # Its end
//
// When the command has ended, or its time is over, everything that it started is killed and waited for before the answer goes out: Lambda
// freezes what is left in an environment and thaws it during another call. The answer to a command whose time is over has what it printed;
// it is given before the function's own time limit, at which Lambda would drop it. The scratch folder is emptied then, and after a command
// with a workspace the file system is made to write what it holds (sync(2)).
//
// It runs on Linux.
package handler
