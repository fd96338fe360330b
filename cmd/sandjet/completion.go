package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// completionCommand prints what a shell needs to complete command lines. The scripts ask the program itself, so that
// they never fall behind it.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// Help returns the detailed help, with the line to add for each shell.
func (*completionCommand) Help() string {
	return `Completes commands, flags, tools and the values that a flag can have; ids and names of what the running Sandjet
knows (sandboxes, workspaces, agents, models, conversations, calls, jobs, approvals); where none of these fits, file names.

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

// completionScript returns the shell function that asks this program for candidates, one per line.
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

// knownWithin limits how long completion waits for a gateway.
const knownWithin = 2 * time.Second

// completeCommand prints candidates for completion. The scripts run it.
type completeCommand struct {
	gatewayTarget

	Words []string `arg:"" optional:"" help:"Words of the command line up to the cursor; the last may be incomplete."`
}

// Run prints the candidates.
func (c *completeCommand) Run(ctx context.Context, t terminal) error {
	k, err := grammar(&cli{}, kong.Name("sandjet"))
	if err != nil {
		return fmt.Errorf("grammar: %w", err)
	}
	for _, word := range candidates(k.Model.Node, c.Words, func(k knownKind) []string { return c.known(ctx, k) }) {
		if _, err := fmt.Fprintln(t.out, word); err != nil {
			return err
		}
	}
	return nil
}

// knownKind is a kind of records whose names or ids a gateway lists.
type knownKind string

// The kinds, named like flags.
const (
	kindSandbox      knownKind = "sandbox"
	kindWorkspace    knownKind = "workspace"
	kindAgent        knownKind = "agent"
	kindModel        knownKind = "model"
	kindConversation knownKind = "conversation"
	kindCall         knownKind = "call"
	kindJob          knownKind = "job"
	kindApproval     knownKind = "approval"
)

// known returns the names or ids of a kind that the gateway lists; none if it does not answer in time.
func (c *completeCommand) known(ctx context.Context, k knownKind) (words []string) {
	const most = 100
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	cl, err := c.open(ctx, c.dir, io.Discard)
	if err != nil {
		return nil
	}
	switch k { // errors are ignored: nothing is offered then
	case kindSandbox:
		list, _ := cl.Sandboxes(client.Me).List(ctx)
		return each(list, func(s schemas.SandboxDocument) string { return s.Name })
	case kindWorkspace:
		list, _ := cl.Workspaces(client.Me).List(ctx)
		return each(list, func(w schemas.WorkspaceDocument) string { return w.Name })
	case kindAgent:
		list, _ := cl.Agents(client.Me).List(ctx)
		return each(list, func(a schemas.AgentDocument) string { return a.Name })
	case kindModel:
		list, _ := cl.Models(client.Me).List(ctx)
		return each(list, func(m schemas.ModelDocument) string { return m.Name })
	case kindConversation:
		list, _, _ := cl.Conversations(ctx, most, "")
		return each(list, func(c schemas.ConversationSummary) string { return string(c.ID) })
	case kindCall:
		list, _, _ := cl.Calls(ctx, client.CallsQuery{Limit: most})
		return each(list, func(c schemas.CallSummary) string { return string(c.ID) })
	case kindJob:
		list, _ := cl.Jobs().List(ctx, client.JobsQuery{Limit: most})
		return each(list, func(j schemas.Job) string { return string(j.ID) })
	case kindApproval:
		list, _ := cl.Approvals().List(ctx, client.ApprovalsQuery{State: schemas.ApprovalPending})
		return each(list, func(a schemas.Approval) string { return string(a.ID) })
	}
	return nil
}

func each[T any](list []T, word func(T) string) (words []string) {
	for _, v := range list {
		words = append(words, word(v))
	}
	return words
}

// candidates returns the sorted completions of the last word. known returns the ids or names of a kind that a gateway lists.
func candidates(root *kong.Node, words []string, known func(knownKind) []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	at, last := walk(root, words[:len(words)-1]), words[len(words)-1]
	if at.value != nil && last == "=" { // bash passes it as a separate word
		last = ""
	}
	var found []string
	switch name, _, given := strings.Cut(last, "="); {
	case at.value != nil:
		found = append(values(at.value.Value), known(knownKind(at.value.Name))...)
	case given && strings.HasPrefix(last, "--"):
		if f := flagOf(at.node, name); f != nil {
			for _, v := range append(values(f.Value), known(knownKind(f.Name))...) {
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
			v := at.node.Positional[at.arguments]
			found = append(append(found, arguments(at.node, v)...), known(kindOf(at.node, v))...)
		}
	}
	found = slices.DeleteFunc(found, func(s string) bool { return !strings.HasPrefix(s, last) })
	slices.Sort(found)
	return slices.Compact(found)
}

// place is the position in the grammar to which the words of a command line lead.
type place struct {
	node      *kong.Node
	value     *kong.Flag // flag whose value is the next word; nil if none
	arguments int        // number of positional arguments so far
}

// walk returns the place to which complete words lead.
func walk(root *kong.Node, words []string) place {
	p := place{node: root}
	for _, word := range words {
		switch child := childOf(p.node, word); {
		case p.value != nil && word == "=": // bash passes it as a separate word
		case p.value != nil:
			p.value = nil
		case strings.HasPrefix(word, "-"):
			if f := flagOf(p.node, word); f != nil && !f.IsBool() {
				p.value = f
			}
		case child != nil && child.Name == "help": // skipped: commands follow
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

// flagOf returns the flag that is written as --name or -n; nil for an unknown one, or if "=" and a value follow.
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

// arguments returns the values that a positional argument can have; nil if they are not a fixed list.
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

// kindOf returns the kind of record that an argument names: that of the collection to which the command belongs. It is empty if the
// argument is no id or name, or if the command creates or lists records.
func kindOf(n *kong.Node, v *kong.Value) knownKind {
	if n.Name == "tail" {
		return kindConversation
	}
	if n.Parent == nil || n.Name == "create" || n.Name == "ls" || v.Name != "id" && v.Name != "name" {
		return ""
	}
	return knownKind(strings.TrimSuffix(strings.Replace(n.Parent.Name, "sandboxes", "sandbox", 1), "s"))
}

// values returns the allowed values of a flag or an argument; nil if they are not a fixed list.
func values(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
