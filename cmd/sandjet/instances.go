package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

type instancesCommand struct {
	LS     instancesListCommand   `cmd:"" name:"ls" help:"List instances."`
	Show   instancesShowCommand   `cmd:"" help:"Show an instance, and what runs in it."`
	Pause  instancesPauseCommand  `cmd:"" help:"Pause an instance: its state is retained, and the next call resumes it."`
	Resume instancesResumeCommand `cmd:"" help:"Resume a paused instance before a call does."`
	RM     instancesRemoveCommand `cmd:"" name:"rm" help:"Remove an instance. The workspace's files stay; the next call creates a new one."`
	Exec   instancesExecCommand   `cmd:"" help:"Run a command in an instance."`
	Sweep  instancesSweepCommand  `cmd:"" help:"Find instances without a record, and records without an instance (for operators)."`
}

// Help returns the detailed help, for kong.
func (*instancesCommand) Help() string {
	return `A persistent sandbox keeps one instance for each workspace that it is used with: the next call finds what earlier
calls installed or started. The first call creates the instance. It ends after the sandbox's idle timeout or maximum
age, and with its sandbox or workspace. Showing an instance does not count as use.

INSTANCE is the id that ls prints, or the name of a sandbox that has one instance; --workspace says which if
it has several.

Examples:
  sandjet sandboxes instances ls
  sandjet sandboxes instances exec build 'pip list'
  sandjet sandboxes instances pause build --workspace docs
  sandjet sandboxes instances rm local.sb_01j….ws_01j… --force`
}

type instancesListCommand struct {
	listTarget

	Sandbox   string `placeholder:"NAME" use:"" help:"Only instances of this sandbox (id or name)."`
	Workspace string `short:"w" placeholder:"NAME" use:"" help:"Only instances with this workspace (id or name)."`
	Provider  string `placeholder:"NAME" use:"" help:"Only instances of this provider: ${providers}."`
	State     string `placeholder:"STATE" use:"" help:"Only instances in this state: ${instanceStates}."`
	Limit     int    `placeholder:"N" default:"50" use:"" help:"Maximum number of results, up to 500."`
}

// Run lists instances.
func (c *instancesListCommand) Run(ctx context.Context, t terminal) error {
	const most = 500
	if c.Limit < 1 || c.Limit > most {
		return schemas.Invalidf("limit", "%d is out of range: 1 to %d", c.Limit, most)
	}
	state := schemas.InstanceState(c.State)
	if state != "" {
		if err := state.Validate(); err != nil {
			return err
		}
	}
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		q := client.InstancesQuery{Provider: c.Provider, State: state, Limit: c.Limit}
		if err := placeOf(ctx, cl, c.Sandbox, c.Workspace, &q); err != nil {
			return err
		}
		list, more, err := cl.Instances().List(ctx, q)
		if err != nil {
			return err
		}
		if more {
			fmt.Fprintf(t.err, "sandjet: there are more than these %d: --limit shows up to %d\n", len(list), most)
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No instances. Calls of persistent sandboxes make them.",
			"ID\tSTATE\tUSED\tCREATED*\tENDS*\tSANDBOX\tWORKSPACE\tPROVIDER\tWORKER*\tWANTED", func(i schemas.InstanceDocument) string {
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", i.ID, i.State, ago(i.Used), ago(i.Made), ago(i.Deadline),
					names.of(string(i.Sandbox)), names.of(string(i.Workspace)), i.Provider, orDash(printable(i.Worker)), orDash(string(i.Wanted)))
			})
	})
}

// placeOf sets the sandbox and the workspace of a query. Both are given by id or name; empty means any.
func placeOf(ctx context.Context, cl *client.Client, sandbox, workspace string, q *client.InstancesQuery) error {
	if sandbox != "" {
		id, err := sandboxKind().id(ctx, cl, sandbox)
		if err != nil {
			return err
		}
		q.Sandbox = schemas.SandboxID(id)
	}
	if workspace != "" {
		id, err := workspaceKind().id(ctx, cl, workspace)
		if err != nil {
			return err
		}
		q.Workspace = schemas.WorkspaceID(id)
	}
	return nil
}

// instanceArg names one instance.
type instanceArg struct {
	gatewayTarget

	Instance  string `arg:"" help:"Id of the instance, or id or name of its sandbox."`
	Workspace string `short:"w" placeholder:"NAME" use:"" help:"Workspace of the instance (id or name), where its sandbox has several."`
}

// find resolves the argument to the id of an instance.
func (a *instanceArg) find(ctx context.Context, t terminal) (*client.Client, schemas.InstanceID, error) {
	id := schemas.InstanceID(a.Instance)
	whole := strings.Contains(a.Instance, ".") && id.Validate() == nil
	if whole && a.Workspace != "" {
		return nil, "", schemas.Invalidf("workspace", "is part of the instance's id: leave out --workspace")
	}
	cl, err := a.dial(ctx, t)
	if err != nil || whole {
		return cl, id, err
	}
	var q client.InstancesQuery
	if err := placeOf(ctx, cl, a.Instance, a.Workspace, &q); err != nil {
		return nil, "", err
	}
	list, _, err := cl.Instances().List(ctx, q)
	if err != nil {
		return nil, "", err
	}
	id, err = onlyInstance(a.Instance, list)
	return cl, id, err
}

// onlyInstance returns the id of the only instance in list. Codes: not_found (none), invalid (several).
func onlyInstance(named string, list []schemas.InstanceDocument) (schemas.InstanceID, error) {
	switch len(list) {
	case 0:
		return "", schemas.OpErrorf(schemas.NotFound, "instance", "%q has no instance now: a call makes it", schemas.Quotable(named))
	case 1:
		return list[0].ID, nil
	}
	ids := make([]string, len(list))
	for i, v := range list {
		ids[i] = string(v.ID)
	}
	return "", schemas.Invalidf("instance", "%q has %d instances: name one with --workspace, or by its id: %s", schemas.Quotable(named),
		len(list), strings.Join(ids, ", "))
}

type instancesShowCommand struct{ instanceArg }

// Run shows an instance.
func (c *instancesShowCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	i, err := cl.Instances().Get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case t.json:
		return printJSON(t.out, i)
	case t.names:
		return printID(t, i)
	}
	_, err = io.WriteString(t.out, describeInstance(i, namesOf(ctx, t, cl)))
	return wrapOutput(err)
}

// describeInstance returns an instance as text for people, a line for each field.
func describeInstance(i schemas.InstanceDocument, names recordNames) string {
	var d details
	d.line("instance", string(i.ID))
	d.line("state", string(i.State))
	if i.Wanted != "" {
		d.line("wanted", fmt.Sprintf("%s, asked for %s", i.Wanted, ago(i.WantedAt)))
	}
	d.line("sandbox", names.both(string(i.Sandbox)))
	d.line("workspace", names.both(string(i.Workspace)))
	d.line("provider", i.Provider)
	d.line("worker", i.Worker)
	d.at("created", i.Made)
	d.at("used", i.Used)
	d.at("paused", i.Paused)
	d.at("ends", i.Deadline)
	for _, id := range i.Calls {
		d.line("call", string(id))
	}
	for _, id := range i.Jobs {
		d.line("job", string(id))
	}
	return d.String()
}

// instanceChange is what pause, resume and rm have in common: a user requests a state of an instance, and a worker carries it out.
type instanceChange struct {
	instanceArg

	NoWait bool `use:"" help:"Return as soon as it is requested. Default: wait until it is done."`
}

// until repeats ask until the instance has the wanted state, and prints the instance. With --no-wait it asks once.
func (n *instanceChange) until(ctx context.Context, t terminal, want schemas.InstanceState,
	ask func(client.Instances, context.Context, schemas.InstanceID, time.Duration) (schemas.InstanceDocument, error),
) error {
	const each = 30 * time.Second
	cl, id, err := n.find(ctx, t)
	if err != nil {
		return err
	}
	told := time.AfterFunc(patientFor, func() {
		if !n.NoWait {
			fmt.Fprintf(t.err, "sandjet: waiting until %s is %s: its worker does so once it may (Ctrl-C to leave; the request stays)\n",
				id, word(want))
		}
	})
	defer told.Stop()
	for first := true; ; first = false {
		within := each
		if n.NoWait {
			within = 0
		}
		i, err := ask(cl.Instances(), ctx, id, within)
		if !first && want == schemas.InstanceRemoved && schemas.CodeOf(err) == schemas.NotFound { // removed between two requests
			i, err = schemas.InstanceDocument{ID: id, State: want}, nil
		}
		if err != nil {
			return err
		}
		if i.State != want && !n.NoWait {
			if !wait.Sleep(ctx, wait.Jitter(time.Second)) {
				return ctx.Err()
			}
			continue
		}
		told.Stop()
		if t.json {
			return printJSON(t.out, i)
		}
		if i.State != want {
			return say(t, "Asked for %s to be %s. See how far it is: sandjet sandboxes instances show %s", id, word(want), id)
		}
		return say(t, "%s is %s.", id, word(want))
	}
}

// word returns the name of a state in a sentence.
func word(s schemas.InstanceState) string {
	if s == schemas.InstanceReady {
		return "awake"
	}
	return string(s)
}

type instancesPauseCommand struct{ instanceChange }

// Help returns the detailed help, for kong.
func (*instancesPauseCommand) Help() string {
	return `The next call wakes it. What stays meanwhile is up to the provider: containers of docker keep their processes and their
memory, boxes of kubernetes their home folder; local cannot pause. While a call or a background job is in it that is
a conflict: wait for its end or end it first.

Examples:
  sandjet sandboxes instances pause build
  sandjet sandboxes instances pause build --no-wait`
}

// Run pauses an instance.
func (c *instancesPauseCommand) Run(ctx context.Context, t terminal) error {
	return c.until(ctx, t, schemas.InstancePaused, client.Instances.Pause)
}

type instancesResumeCommand struct{ instanceChange }

// Run resumes an instance.
func (c *instancesResumeCommand) Run(ctx context.Context, t terminal) error {
	return c.until(ctx, t, schemas.InstanceReady, client.Instances.Resume)
}

type instancesRemoveCommand struct {
	instanceChange

	Force bool `use:"" help:"Cancel the calls in it, and end its background jobs with it."`
}

// Run removes an instance.
func (c *instancesRemoveCommand) Run(ctx context.Context, t terminal) error {
	return c.until(ctx, t, schemas.InstanceRemoved,
		func(i client.Instances, ctx context.Context, id schemas.InstanceID, within time.Duration) (schemas.InstanceDocument, error) {
			return i.Remove(ctx, id, c.Force, within)
		})
}

type instancesExecCommand struct {
	instanceArg

	Command      string        `arg:"" help:"Command; quote it."`
	Conversation string        `short:"c" placeholder:"ID" use:"" help:"Conversation for the call's events. Default: a new one."`
	Timeout      time.Duration `placeholder:"DURATION" use:"" help:"Time limit of the run. Default: the sandbox's."`
	Verbose      bool          `short:"v" use:"" help:"Print the call's id, conversation and status on stderr."`
}

// Help returns the detailed help, for kong.
func (*instancesExecCommand) Help() string {
	return `This is a call of bash like any other: it waits for its turn, a person must allow it where the sandbox says so, its
events are on its conversation, and it counts as use of the instance. One that is paused wakes. The exit code is
the command's own; "sandjet help call" lists the others.

Examples:
  sandjet sandboxes instances exec build 'ps aux'
  sandjet sandboxes instances exec local.sb_01j….ws_01j… 'df -h'`
}

// Run runs a command in an instance.
func (c *instancesExecCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	i, err := cl.Instances().Get(ctx, id)
	if err != nil {
		return err
	}
	if err := stillRunsAt(ctx, cl, i); err != nil {
		return err
	}
	input, err := json.Marshal(map[string]string{"command": c.Command})
	if err != nil {
		return fmt.Errorf("encode the command: %w", err)
	}
	r := schemas.Request{
		ID: schemas.NewCallID(), Conversation: schemas.ConversationID(c.Conversation), Tool: schemas.ToolBash, Input: input,
		Workspace: string(i.Workspace), Sandbox: string(i.Sandbox), Timeout: schemas.Duration(c.Timeout), Origin: &schemas.Origin{Kind: "api"},
	}
	if err := r.Validate(); err != nil {
		return err
	}
	result, err := (&callRun{client: cl, request: r, t: t, verbose: c.Verbose}).do(ctx)
	if err != nil {
		return err
	}
	return &exitError{code: resultCode(result)}
}

// stillRunsAt returns an error if no call enters the instance any more, because its sandbox has moved to another provider or is no longer
// persistent. Code: conflict.
func stillRunsAt(ctx context.Context, cl *client.Client, i schemas.InstanceDocument) error {
	s, err := cl.Sandboxes(client.Me).Get(ctx, string(i.Sandbox))
	if err != nil {
		return err
	}
	switch provider := cmp.Or(s.Config.Provider, i.Provider); {
	case provider != i.Provider:
		return schemas.OpErrorf(schemas.Conflict, "instance",
			"the sandbox runs on %s by now, and no call enters this instance any more: it ends when it is idle", printable(provider))
	case !s.Config.Persistent:
		return schemas.OpErrorf(schemas.Conflict, "instance",
			"the sandbox is no longer persistent, and no call enters this instance any more: it ends when it is idle")
	}
	return nil
}
