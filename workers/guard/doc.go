// Package guard says of a bash command whether it obviously leaves the workspace, before it is run.
//
// It is a courtesy to the model: a refusal that names the path and the remedy costs no run, and a
// command that meant to write a result does not lose it in a box that is thrown away. It is no
// boundary. A command can hide what it does in a hundred ways, and what the guard cannot know it lets
// through: a variable's value, a script's content, text that is no bash. What a command can reach is
// decided by the provider alone.
//
// [Check] is pure: it parses the command, walks every part of it that would be run, and follows the working directory as far as the text
// shows it.
//
// # What it lets through
//
// The command is parsed with mvdan.cc/sh and walked in the order in which bash runs it, with the working directory followed as far as the
// text shows it. What only a run could show passes. The default policy refuses what would be lost and walks over everything, not reading.
// The parser has no bound of its own: at 512 bytes a step it is asked how deep it is, and ended at 2000 frames. Commands above 256 KiB are
// not looked at.
package guard
