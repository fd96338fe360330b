package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/wait"
)

// listTarget is the target of commands that print a list.
type listTarget struct {
	gatewayTarget
	watchFlag
}

// list prints a list, and with --watch prints it again whenever it changes.
func (l *listTarget) list(ctx context.Context, t terminal, show func(context.Context, terminal, *client.Client) error) error {
	cl, err := l.dial(ctx, t)
	if err != nil {
		return err
	}
	return l.repeat(ctx, t, func(ctx context.Context, t terminal) error { return show(ctx, t, cl) })
}

// watchFlag is the flag --watch of commands that print a list.
type watchFlag struct {
	Watch bool `use:"" help:"Print the list again whenever it changes, until Ctrl-C."`
}

// repeat calls show once. With --watch it calls it again and again until ctx ends, and prints the list whenever it has changed.
func (l *watchFlag) repeat(ctx context.Context, t terminal, show func(context.Context, terminal) error) error {
	if !l.Watch {
		return show(ctx, t)
	}
	const every = 2 * time.Second
	var last []byte
	for {
		var now bytes.Buffer
		shown := t
		shown.out, shown.colors = &now, t.colored()
		if err := show(ctx, shown); err != nil {
			return unlessLeft(ctx, err)
		}
		if !bytes.Equal(last, now.Bytes()) {
			if isTerminal(t.out) && !t.json {
				fmt.Fprint(unguarded(t.out), "\x1b[H\x1b[2J")
			}
			last = now.Bytes()
			if _, err := unguarded(t.out).Write(last); err != nil {
				return wrapOutput(err)
			}
		}
		if !wait.Sleep(ctx, every) {
			return left()
		}
	}
}

// colored reports whether the output is displayed in colors: on a terminal whose user has not disabled them, see https://no-color.org.
func (t terminal) colored() bool {
	return t.colors || isTerminal(t.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// printList prints a list as a table, as JSON, or as its first column alone. The text none is printed in place of an empty table.
//
// All tables have their columns in one order: first the argument of other commands (an id or a name), then the name, the state, the time,
// related records, and last the longest value. A column whose head ends with * is shown by -o wide only.
func printList[T any](t terminal, list []T, none, header string, row func(T) string) error {
	if len(list) == 0 && !t.json && !t.names {
		return say(t, "%s", none)
	}
	return printTable(t, list, header, row)
}

// printTable is printList with a table even for an empty list.
func printTable[T any](t terminal, list []T, header string, row func(T) string) error {
	if t.json {
		return printEach(t, list)
	}
	const gap = 2
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, gap, ' ', 0)
	heads := strings.Split(header, "\t")
	shown := func(line string) string {
		if t.names {
			line, _, _ = strings.Cut(line, "\t")
			return line
		}
		var cells []string
		for i, cell := range strings.Split(line, "\t") {
			if t.wide || i >= len(heads) || !strings.HasSuffix(heads[i], "*") {
				cells = append(cells, cell)
			}
		}
		return strings.Join(cells, "\t")
	}
	if !t.names {
		fmt.Fprintln(w, strings.ReplaceAll(shown(header), "*", ""))
	}
	for _, v := range list {
		fmt.Fprintln(w, shown(row(v)))
	}
	if err := w.Flush(); err != nil {
		return wrapOutput(err)
	}
	out, text := t.out, b.String()
	if t.colored() && !t.names {
		out, text = unguarded(t.out), colorTable(printable(text))
	}
	_, err := fmt.Fprint(out, text)
	return wrapOutput(err)
}

// colorTable makes the head of a table bold and colors the words in its column STATE or STATUS.
func colorTable(text string) string {
	const bold, reset = "\x1b[1m", "\x1b[0m"
	head, body, _ := strings.Cut(text, "\n")
	at := max(strings.Index(head, "STATE"), strings.Index(head, "STATUS"))
	var b strings.Builder
	b.WriteString(bold + head + reset + "\n")
	for line := range strings.Lines(body) {
		runes := []rune(line)
		if at < 0 || at >= len(runes) {
			b.WriteString(line)
			continue
		}
		word, _, _ := strings.Cut(string(runes[at:]), " ")
		color := stateColor(strings.TrimSpace(word))
		if color == "" {
			b.WriteString(line)
			continue
		}
		b.WriteString(string(runes[:at]) + "\x1b[" + color + "m" + word + reset + string(runes[at+utf8.RuneCountInString(word):]))
	}
	return b.String()
}

func stateColor(state string) string {
	const red, green, yellow, cyan = "31", "32", "33", "36"
	switch state {
	case "completed", "approved", "enabled", "active", "ready":
		return green
	case "failed", "denied", "interrupted", "lost", "failing", "missing":
		return red
	case "pending", "awaiting_approval", "expired", "cancelled", "stopped", "disabled", "paused":
		return yellow
	case "running", "queued", "waiting", "launching", "reserving", "pausing", "ending":
		return cyan
	}
	return ""
}

// recordNames maps ids to names, of an account's sandboxes, workspaces, models and agents.
type recordNames map[string]string

// namesOf reads the names, unless the output is JSON or ids. Errors are ignored: ids are shown instead.
func namesOf(ctx context.Context, t terminal, cl *client.Client) recordNames {
	names := recordNames{}
	if t.json || t.names {
		return names
	}
	sandboxes, _ := cl.Sandboxes(client.Me).List(ctx)
	for _, s := range sandboxes {
		names[string(s.ID)] = s.Name
	}
	workspaces, _ := cl.Workspaces(client.Me).List(ctx)
	for _, w := range workspaces {
		names[string(w.ID)] = w.Name
	}
	models, _ := cl.Models(client.Me).List(ctx)
	for _, m := range models {
		names[string(m.ID)] = m.Name
	}
	agents, _ := cl.Agents(client.Me).List(ctx)
	for _, g := range agents {
		names[string(g.ID)] = g.Name
	}
	return names
}

// of returns the name of a record, or its id if the name is unknown; a dash for an empty id.
func (n recordNames) of(id string) string {
	return orDash(printable(cmp.Or(n[id], id)))
}

// both returns the name of a record and its id.
func (n recordNames) both(id string) string {
	if name := n[id]; name != "" {
		return fmt.Sprintf("%s (%s)", printable(name), id)
	}
	return orDash(printable(id))
}

// dated returns a time as text: its date, and how far from now it is.
func dated(when time.Time) string {
	return fmt.Sprintf("%s (%s)", when.Local().Format(time.DateTime), ago(when))
}

// ago returns a time as text: within a week how far from now it is, else the date; a dash for the zero time.
func ago(when time.Time) string {
	const day, skew = 24 * time.Hour, 30 * time.Second // skew: between the clocks of two hosts
	switch d := time.Since(when); {
	case when.IsZero():
		return "-"
	case d < -7*day:
		return when.Local().Format(time.DateOnly)
	case d < -day:
		return fmt.Sprintf("in %dd", int(-d/day))
	case d < -time.Hour:
		return fmt.Sprintf("in %dh", int(-d.Hours()))
	case d < -time.Minute:
		return fmt.Sprintf("in %dm", int(-d.Minutes()))
	case d < -skew:
		return fmt.Sprintf("in %ds", int(-d.Seconds()))
	case d < time.Second: // or slightly ahead, by another host's clock
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < day:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	case d < 7*day:
		return fmt.Sprintf("%dd ago", int(d/day))
	}
	return when.Local().Format(time.DateOnly)
}
