package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

type jobsCommand struct {
	LS     jobsListCommand   `cmd:"" name:"ls" help:"List background jobs, newest first."`
	Show   jobsShowCommand   `cmd:"" help:"Show a job."`
	Logs   jobsLogsCommand   `cmd:"" help:"Print a job's output."`
	Stop   jobsStopCommand   `cmd:"" help:"Stop a job: SIGTERM, then SIGKILL to all its processes."`
	Signal jobsSignalCommand `cmd:"" help:"Send a signal to a job's processes."`
	Stdin  jobsStdinCommand  `cmd:"" help:"Write to a job's standard input."`
	Wait   jobsWaitCommand   `cmd:"" help:"Wait for a job and exit with its exit code."`
}

// Help returns the detailed help, for kong.
func (*jobsCommand) Help() string {
	return `A background job is what "sandjet call --background bash …" starts. It keeps running when the call has its
result and nobody is connected, for 24 hours unless its sandbox says otherwise. Its end is reported once: on
its conversation as job.finished, to webhooks, and to the agent whose turn it was. Records of ended
jobs are retained for seven days.

Examples:
  sandjet call --background bash 'make test'
  sandjet jobs ls --state running
  sandjet jobs logs -f job_01j…
  sandjet jobs wait job_01j…`
}

// gatewayTarget is the gateway of a client command, with the data folder on which a running one is found.
type gatewayTarget struct {
	target

	dir string
}

// AfterApply is called by kong once everything is parsed.
func (g *gatewayTarget) AfterApply(root *cli) error {
	g.dir = clientDir(root.DataDir)
	return nil
}

func (g *gatewayTarget) dial(ctx context.Context, t terminal) (*client.Client, error) {
	return g.open(ctx, g.dir, t.err)
}

// dialAbout connects to the gateway for a command about one record. The id is validated first.
func dialAbout[ID interface {
	~string
	Validate() error
}](ctx context.Context, t terminal, g *gatewayTarget, id ID) (*client.Client, ID, error) {
	if err := id.Validate(); err != nil {
		return nil, "", err
	}
	cl, err := g.dial(ctx, t)
	return cl, id, err
}

// jobTarget names a job and the gateway that has it.
type jobTarget struct {
	gatewayTarget

	ID string `arg:"" help:"Id of the job."`
}

func (j *jobTarget) dial(ctx context.Context, t terminal) (*client.Client, schemas.JobID, error) {
	return dialAbout(ctx, t, &j.gatewayTarget, schemas.JobID(j.ID))
}

type jobsListCommand struct {
	listTarget

	State        string `placeholder:"STATE" use:"" help:"Only jobs in this state; running means all that have not ended. Default: all."`
	Conversation string `short:"c" placeholder:"ID" use:"" help:"Only jobs of this conversation (id)."`
	Limit        int    `placeholder:"N" default:"50" use:"" help:"Maximum number of results, up to 500."`
}

// Run lists jobs.
func (c *jobsListCommand) Run(ctx context.Context, t terminal) error {
	const most = 500
	if c.Limit < 1 || c.Limit > most {
		return schemas.Invalidf("limit", "%d is out of range: 1 to %d", c.Limit, most)
	}
	if c.State != "" && !slices.Contains(schemas.JobStates(), schemas.JobState(c.State)) {
		return schemas.Invalidf("state", "%q is unknown: use one of %s", schemas.Quotable(c.State), jobStates())
	}
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Jobs().List(ctx, client.JobsQuery{State: c.State, Conversation: schemas.ConversationID(c.Conversation), Limit: c.Limit})
		if err != nil {
			return err
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No jobs.",
			"ID\tSTATE\tEXIT\tCREATED\tSANDBOX\tWORKSPACE*\tAGENT*\tCALL*\tCONVERSATION\tCOMMAND", func(j schemas.Job) string {
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", j.ID, j.State, exitOf(j), ago(j.Created), names.of(string(j.Sandbox)),
					names.of(string(j.Workspace)), names.of(string(j.Agent)), j.Call, printable(string(j.Conversation)), inline(j.Command))
			})
	})
}

func jobStates() string {
	var names []string
	for _, s := range schemas.JobStates() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// exitOf returns a job's exit code as text; a dash if there is none.
func exitOf(j schemas.Job) string {
	if j.Completion == nil || j.Completion.ExitCode == nil {
		return "-"
	}
	return fmt.Sprint(*j.Completion.ExitCode)
}

type jobsShowCommand struct{ jobTarget }

// Run shows one job.
func (c *jobsShowCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	j, err := cl.Jobs().Get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case t.json:
		return printJSON(t.out, j)
	case t.names:
		return printID(t, j)
	}
	_, err = io.WriteString(t.out, describeJob(j, namesOf(ctx, t, cl)))
	return wrapOutput(err)
}

// describeJob returns a job as text for people, a line for each field.
func describeJob(j schemas.Job, names recordNames) string {
	var d details
	d.line("job", string(j.ID))
	d.line("state", string(j.State))
	if c := j.Completion; c != nil {
		d.line("exit code", exitOf(j))
		d.line("reason", c.Reason)
		if c.OOMKilled {
			d.line("memory", "killed: it ran out of memory")
		}
		if c.ChildrenLeft > 0 {
			d.line("killed", fmt.Sprintf("%d processes that its command left running", c.ChildrenLeft))
		}
		d.line("reported by", string(c.ReportedBy))
	}
	d.line("command", inline(j.Command))
	d.line("call", string(j.Call))
	d.line("conversation", string(j.Conversation))
	if j.Group != nil {
		d.line("group", fmt.Sprintf("%s of %d", j.Group.ID, j.Group.Size))
	}
	d.line("sandbox", names.both(string(j.Sandbox))+" at "+j.Provider)
	d.line("workspace", names.both(string(j.Workspace)))
	d.at("created", j.Created)
	d.at("started", j.Launched)
	if c := j.Completion; c != nil {
		d.at("ended", c.Finished)
		d.line("printed", count(c.LogBytes, "byte"))
		if n := c.LogInvalidBytes; n > 0 {
			d.line("shown", are(n, "byte")+" not UTF-8 and shown as U+FFFD; jobs logs prints the bytes")
		}
		for _, line := range artifactLines(c.JobArtifacts) {
			d.line("left", line)
		}
		d.below(c.Logs)
		return d.String()
	}
	d.at("until", j.Deadline)
	actions := make([]string, len(j.Actions))
	for i, a := range j.Actions {
		actions[i] = string(a)
	}
	d.line("actions", strings.Join(actions, ", "))
	return d.String()
}

type jobsLogsCommand struct {
	jobTarget

	Follow bool  `short:"f" use:"" help:"Follow the output until the job ends or Ctrl-C."`
	Offset int64 `placeholder:"N" use:"" help:"Start at this byte of the output."`
	Tail   int   `placeholder:"N" use:"" help:"Start this many bytes before the end, at most 262144."`
}

// Help returns the detailed help, for kong.
func (*jobsLogsCommand) Help() string {
	return `Prints standard output and standard error as the job printed them, byte by byte. Its sandbox keeps the
last 64 MiB while it is there; after that the last 32 KiB remain. With --json each piece is a line with
its text (or data in base64, where it is no text), offset, next, size and ended; next resumes after it.

Examples:
  sandjet jobs logs -f job_01j…
  sandjet jobs logs --tail 2000 job_01j…`
}

// Run prints logs.
func (c *jobsLogsCommand) Run(ctx context.Context, t terminal) error {
	switch {
	case c.Offset < 0:
		return schemas.Invalidf("offset", "%d is negative", c.Offset)
	case c.Tail < 0 || c.Tail > schemas.MaxJobLogPage:
		return schemas.Invalidf("tail", "%d is out of range: 0 to %d", c.Tail, schemas.MaxJobLogPage)
	case c.Tail > 0 && c.Offset > 0:
		return schemas.Invalidf("", "--tail and --offset both say where to begin: give one")
	}
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	offset := c.Offset
	if c.Tail > 0 {
		offset = -1
	}
	for {
		page, err := cl.Jobs().Logs(ctx, id, offset, c.Tail)
		if err != nil {
			return unlessLeft(ctx, err)
		}
		if err := printPage(t, page); err != nil {
			return err
		}
		c.Tail = 0
		done := page.Next >= page.Size || page.Next == offset
		offset = page.Next
		switch {
		case !done:
		case !c.Follow || page.Ended:
			return nil
		case !t.json:
			return unlessLeft(ctx, cl.Jobs().FollowLogs(ctx, id, offset, t.out))
		default:
			if !wait.Sleep(ctx, time.Second) {
				return left()
			}
		}
	}
}

// printPage prints a page of a log: its bytes, or with --json a line with them.
func printPage(t terminal, p client.JobLogPage) error {
	if !t.json {
		_, err := t.out.Write(p.Data)
		return wrapOutput(err)
	}
	line := struct {
		Text   string `json:"text,omitzero"`
		Data   []byte `json:"data,omitempty"`
		Offset int64  `json:"offset"`
		Next   int64  `json:"next"`
		Size   int64  `json:"size"`
		Ended  bool   `json:"ended"`
	}{Offset: p.Offset, Next: p.Next, Size: p.Size, Ended: p.Ended}
	if text := string(p.Data); strings.ToValidUTF8(text, "") == text {
		line.Text = text
	} else {
		line.Data = p.Data
	}
	return printJSON(t.out, line)
}

type jobsWaitCommand struct{ jobTarget }

// Help returns the detailed help, for kong.
func (*jobsWaitCommand) Help() string {
	return `Waits until the job has ended and prints how on stderr; with --json it prints the job. Ctrl-C stops the
waiting, not the job.

Exit codes:
  0-255  the job's own; 128+n if signal n killed it
  124    the job reached its time limit
  130    the job was stopped without an exit code, or Ctrl-C
  71     the job is lost: its outcome is unknown
  75     the call ended without starting it`
}

// Run waits for the end of a job.
func (c *jobsWaitCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	j, err := waitJob(ctx, cl, id)
	if err != nil {
		if ctx.Err() != nil {
			return &exitError{code: exitCancelled}
		}
		return err
	}
	if t.json {
		err = printJSON(t.out, j)
	} else {
		lines := append([]string{jobLine(schemas.JobResultOf(j, *j.Completion))}, artifactLines(j.Completion.JobArtifacts)...)
		_, err = fmt.Fprintf(t.err, "sandjet: %s\n", strings.Join(lines, "\nsandjet: "))
	}
	if err != nil {
		return wrapOutput(err)
	}
	return &exitError{code: jobCode(*j.Completion)}
}

// waitJob polls a job until it has ended. It does not wait for an event, because a job that its call never started ends without one.
func waitJob(ctx context.Context, cl *client.Client, id schemas.JobID) (schemas.Job, error) {
	for look := 1; ; look++ {
		j, err := cl.Jobs().Get(ctx, id)
		if err != nil {
			return j, err
		}
		if j.Completion != nil {
			return j, nil
		}
		if !(wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}).Sleep(ctx, look) {
			return j, ctx.Err()
		}
	}
}

// jobCode returns the exit code of "sandjet jobs wait".
func jobCode(c schemas.Completion) int {
	switch c.State {
	case schemas.JobExpired:
		return exitTimeout
	case schemas.JobLost:
		return exitInterrupted
	case schemas.JobUnstarted:
		return exitTryLater
	case schemas.JobCompleted, schemas.JobFailed, schemas.JobStopped, schemas.JobWaiting, schemas.JobLaunching, schemas.JobRunning:
	}
	switch {
	case c.ExitCode != nil:
		return *c.ExitCode
	case c.State == schemas.JobCompleted:
		return exitOK
	case c.State == schemas.JobStopped:
		return exitCancelled
	}
	return exitFailure
}

// jobLine returns a line about how a job ended.
func jobLine(r schemas.JobResult) string {
	s := fmt.Sprintf("%s %s", r.Job, r.State)
	if r.ExitCode != nil {
		s += fmt.Sprintf(", exit code %d", *r.ExitCode)
	}
	if r.DurationMS > 0 {
		s += fmt.Sprintf(", %d ms", r.DurationMS)
	}
	if r.Reason != "" {
		s += ": " + printable(r.Reason)
	}
	return s
}

// unlessLeft returns err, or the exit code of Ctrl-C if that has ended ctx.
func unlessLeft(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return left()
	}
	return err
}

// left returns the exit code of Ctrl-C. The job or conversation that was followed is not affected.
func left() error { return &exitError{code: exitCancelled} }

// say prints a line.
func say(t terminal, format string, args ...any) error {
	_, err := fmt.Fprintf(t.out, format+"\n", args...)
	return wrapOutput(err)
}

// printEach prints each value as a line of JSON.
func printEach[T any](t terminal, list []T) error {
	for _, v := range list {
		if err := printJSON(t.out, v); err != nil {
			return err
		}
	}
	return nil
}
