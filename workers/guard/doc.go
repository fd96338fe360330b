// Package guard reports whether a bash command obviously leaves the workspace, before it is run.
//
// It helps the model: a refusal that names the path and the remedy costs no run, and a command that was meant to store a result does not
// lose it in a sandbox instance that is discarded. It is no security boundary. A command can hide what it does in many ways, and what the
// guard cannot know, it allows: the value of a variable, the content of a script, text that is not bash. Only the provider limits what a
// command can reach.
//
// [Check] has no side effects: it parses the command, walks every part of it that would be run, and tracks the working directory as far as
// the text shows it.
//
// # Limits
//
// The command is parsed with mvdan.cc/sh and walked in the order in which bash runs it. Whatever only a run could show is allowed. The
// default policy refuses writes that would be lost and walks over the whole file system, but not reads. The parser does not limit its
// recursion: its input is passed to it 512 bytes at a time, and it is stopped at 2000 stack frames. Commands above 256 KiB are not
// checked.
package guard
