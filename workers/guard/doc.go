// Package guard says of a bash command whether it obviously leaves the workspace, before it is run.
//
// It is a courtesy to the model: a refusal that names the path and the remedy costs no run, and a
// command that meant to write a result does not lose it in a box that is thrown away. It is no
// boundary. A command can hide what it does in a hundred ways, and what the guard cannot know it lets
// through: a variable's value, a script's content, text that is no bash. What a command can reach is
// decided by the provider alone.
//
// [Check] is pure: it parses the command, walks every part of it that would be run, and follows the
// working directory as far as the text tells it.
package guard
