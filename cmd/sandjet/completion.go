package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/schemas"
)

// completionCommand prints what a shell needs to complete command lines. The scripts ask the program itself, so that
// they never fall behind it.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// Help says where each shell wants it.
func (*completionCommand) Help() string {
	return `Completes commands, flags, tools and the values that a flag can have; where none of these fits, file names.

Examples:
  eval "$(sandjet completion bash)"                                       in ~/.bashrc
  eval "$(sandjet completion zsh)"                                        in ~/.zshrc, behind compinit
  sandjet completion fish > ~/.config/fish/completions/sandjet.fish`
}

// Run prints the script.
func (c *completionCommand) Run(_ context.Context, t terminal) error {
	_, err := io.WriteString(t.out, completionScript(c.Shell))
	return err
}

// completionScript is the function by which a shell asks for candidates: a line for each.
func completionScript(shell string) string {
	switch shell {
	case "zsh":
		return `_sandjet() {
  local -a found
  found=(${(f)"$(sandjet complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#found} )); then compadd -- $found; else _files; fi
}
compdef _sandjet sandjet
`
	case "fish":
		return `function __sandjet_complete
    sandjet complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c sandjet -a '(__sandjet_complete)'
`
	default:
		return `_sandjet() {
  local IFS=$'\n'
  COMPREPLY=($(sandjet complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _sandjet sandjet
`
	}
}

// completeCommand is what the scripts run.
type completeCommand struct {
	Words []string `arg:"" optional:"" help:"Words of the command line up to the cursor; the last may be incomplete."`
}

// Run prints the candidates.
func (c *completeCommand) Run(_ context.Context, t terminal) error {
	k, err := grammar(&cli{}, kong.Name("sandjet"))
	if err != nil {
		return fmt.Errorf("grammar: %w", err)
	}
	for _, word := range candidates(k.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(t.out, word); err != nil {
			return err
		}
	}
	return nil
}

// candidates are what the last of the words can become, in order. It is pure.
func candidates(root *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	at, last := walk(root, words[:len(words)-1]), words[len(words)-1]
	if at.value != nil && last == "=" { // bash makes it a word of its own
		last = ""
	}
	var found []string
	switch name, _, given := strings.Cut(last, "="); {
	case at.value != nil:
		found = values(at.value.Value)
	case given && strings.HasPrefix(last, "--"):
		if f := flagOf(at.node, name); f != nil {
			for _, v := range values(f.Value) {
				found = append(found, name+"="+v)
			}
		}
	case strings.HasPrefix(last, "-"):
		for _, group := range at.node.AllFlags(true) {
			for _, f := range group {
				found = append(found, "--"+f.Name)
			}
		}
	default:
		for _, c := range at.node.Children {
			if c.Type == kong.CommandNode && !c.Hidden {
				found = append(found, c.Name)
			}
		}
		if at.arguments < len(at.node.Positional) {
			found = append(found, arguments(at.node, at.node.Positional[at.arguments])...)
		}
	}
	found = slices.DeleteFunc(found, func(s string) bool { return !strings.HasPrefix(s, last) })
	slices.Sort(found)
	return slices.Compact(found)
}

// place is where the words of a command line lead.
type place struct {
	node      *kong.Node
	value     *kong.Flag // whose value is the next word
	arguments int        // so many the command has
}

// walk follows words that are whole.
func walk(root *kong.Node, words []string) place {
	p := place{node: root}
	for _, word := range words {
		switch child := childOf(p.node, word); {
		case p.value != nil && word == "=": // bash makes it a word of its own
		case p.value != nil:
			p.value = nil
		case strings.HasPrefix(word, "-"):
			if f := flagOf(p.node, word); f != nil && !f.IsBool() {
				p.value = f
			}
		case child != nil && child.Name == "help": // commands follow, as if it were not there
		case child != nil:
			p.node, p.arguments = child, 0
		default:
			p.arguments++
		}
	}
	return p
}

func childOf(n *kong.Node, name string) *kong.Node {
	for _, c := range n.Children {
		if c.Type == kong.CommandNode && (c.Name == name || slices.Contains(c.Aliases, name)) {
			return c
		}
	}
	return nil
}

// flagOf finds a flag as it is written; one that has its value behind "=" is none.
func flagOf(n *kong.Node, word string) *kong.Flag {
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// arguments are what a command's argument can be.
func arguments(n *kong.Node, v *kong.Value) []string {
	if n.Name == "call" && v.Name == "tool" {
		var names []string
		for _, t := range schemas.Tools() {
			names = append(names, string(t))
		}
		return names
	}
	return values(v)
}

// values are what a flag or an argument can be where that is a list.
func values(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
