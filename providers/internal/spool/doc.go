// Package spool runs the program of package boxrun in a sandbox that offers only short commands: commands that start, print a little and
// end. The program then does not depend on a connection.
//
// A short command starts the program detached from itself. The program's input is a file and a named pipe in the sandbox. Its output is
// stored in the sandbox in numbered pieces of 64 KiB, at most eight per output stream: a program that prints more blocks. A fetch waits
// for pieces, and the next fetch acknowledges those that arrived, so that a fetch can be repeated after a broken connection: no output is
// lost or duplicated.
package spool
