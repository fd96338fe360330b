// Package spool runs the program of package boxrun in a sandbox that is reached by short commands only: ones that are started, print
// a little and end. Nothing of a program depends on one connection then.
//
// A short command starts the program detached from itself. Its input is a file and a pipe of the sandbox. What it prints is kept in the
// sandbox in numbered pieces of 64 KiB, at most eight of each output: a program that prints more waits. A fetch waits for pieces, and the
// next one says which have arrived, so that it may be repeated whenever a connection broke: nothing is lost and nothing comes twice.
package spool
