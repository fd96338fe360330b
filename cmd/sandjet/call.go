package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// target names the gateway that a client command calls.
type target struct {
	URL string `name:"url" placeholder:"URL" group:"Target" help:"Gateway URL. Default: the one that runs on the data folder."`
	Key string `placeholder:"KEY" group:"Target" secret:"" help:"API key. Prefer the environment: other users can see command lines. Default: as --url."`
}

// open returns a client of the gateway at --url, or else of the one that runs on the data folder. The client prints to out when the
// gateway becomes unreachable.
func (g target) open(ctx context.Context, dir string, out io.Writer) (*client.Client, error) {
	e := endpoint{URL: g.URL, Key: g.Key}
	if e.URL == "" {
		found, err := dataDir(dir).running()
		if err != nil {
			return nil, err
		}
		e = endpoint{URL: found.URL, Key: cmp.Or(g.Key, found.Key)}
	}
	if e.Key == "" {
		if _, err := healthURL(e.URL, "/healthz"); err != nil {
			return nil, err
		}
		return nil, schemas.Errorf(schemas.Denied, "a key is needed for %s: set SANDJET_KEY", e.URL)
	}
	// The client would keep trying a wrong address. A gateway that answers as unhealthy is the right one.
	if _, err := askHealth(ctx, e.URL, "/healthz"); err != nil && !errors.Is(err, errNotWell) {
		return nil, err
	}
	cl := client.New(e.URL, e.Key)
	cl.HTTP = &http.Client{Transport: &patient{out: out, at: e.URL}}
	cl.Warned = func(text string) { fmt.Fprintln(out, "sandjet: warning:", printable(text)) }
	return cl, nil
}

// patient is an http.RoundTripper that prints to the user why the client keeps trying: the gateway is unreachable, or it answers that it
// cannot work now, for instance because its log does not respond.
type patient struct {
	out   io.Writer
	at    string
	quiet time.Duration // how long the latter must last before it is printed; 0: patientFor
	away  atomic.Bool

	mu      sync.Mutex
	refused time.Time // since when the gateway answers 503; zero while it does not
	printed bool      // whether the reason was printed
}

// patientFor is how long a delay must last before it is explained: most are over by then.
const patientFor = 2 * time.Second

// RoundTrip sends the request by the default transport. It prints when the gateway becomes unreachable, when it is back, and why a request
// takes long.
func (p *patient) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.URL.RawQuery == "" { // a GET or a query may ask the gateway to wait
		defer time.AfterFunc(cmp.Or(p.quiet, patientFor), func() { p.say("the log does not answer") }).Stop()
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	switch {
	case err != nil && r.Context().Err() == nil:
		if !p.away.Swap(true) {
			fmt.Fprintf(p.out, "sandjet: %s is unreachable: retrying until it is back (Ctrl-C to leave)\n", p.at)
		}
	case err == nil && p.away.Swap(false):
		fmt.Fprintf(p.out, "sandjet: %s is back\n", p.at)
	}
	if err == nil {
		p.answered(resp, time.Now())
	}
	return resp, err
}

// answered records since when the gateway answers 503, which means that it cannot work now, and prints the reason once that has lasted for
// p.quiet. Any other answer resets the record.
func (p *patient) answered(resp *http.Response, now time.Time) {
	if resp.StatusCode != http.StatusServiceUnavailable {
		p.mu.Lock()
		p.refused, p.printed = time.Time{}, false
		p.mu.Unlock()
		return
	}
	const most = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(resp.Body, most)) // an unreadable body counts as empty
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	why := cmp.Or(reasonIn(body), "the log does not answer")
	p.mu.Lock()
	if p.refused.IsZero() {
		p.refused = now
	}
	due := now.Sub(p.refused) >= cmp.Or(p.quiet, patientFor)
	p.mu.Unlock()
	if due {
		p.say(why)
	}
}

// say prints the reason for the delay, once.
func (p *patient) say(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.printed {
		p.printed = true
		fmt.Fprintf(p.out, "sandjet: %s: retrying (Ctrl-C to leave)\n", why)
	}
}

type callCommand struct {
	target

	Tool          string        `arg:"" help:"bash, read, write, edit, glob, grep, ls, load_skill or async_status."`
	Args          []string      `arg:"" optional:"" help:"Arguments of the tool, or its whole input as one JSON object."`
	Conversation  string        `short:"c" placeholder:"ID" use:"" help:"Conversation for the call's events. Default: a new one."`
	Agent         string        `placeholder:"NAME" use:"" help:"Agent that makes the call (id or name); its settings decide where the call runs and whether it may."`
	Workspace     string        `short:"w" placeholder:"NAME" use:"" help:"Workspace with the files. Default: \"default\", or the agent's first."`
	Sandbox       string        `placeholder:"NAME" use:"" help:"Sandbox to run in. Default: the workspace's."`
	Timeout       time.Duration `placeholder:"DURATION" use:"" help:"Time limit of the run. Default: the sandbox's."`
	Deadline      time.Duration `placeholder:"DURATION" use:"" help:"How long the call may take from now on, waiting for a worker, for a slot and for an approval included; at most 23h. Default: 1h."`
	ID            string        `name:"id" placeholder:"ID" use:"" help:"Id of the call. Repeating a call under its id never runs it twice: it returns the first result."`
	Background    bool          `short:"b" use:"" help:"With bash: start a background job, print its id and return."`
	Group         string        `placeholder:"NAME" use:"" help:"With --background: group whose results are reported together, when all its jobs have ended."`
	GroupSize     int           `placeholder:"N" use:"" help:"Number of calls in the group; the same in all of them."`
	Artifacts     []string      `name:"artifact" placeholder:"PATTERN" sep:"none" use:"" help:"Files, such as report.pdf or plots/*.png, that are kept as artifacts if the call changes them, beside those below outputs. Repeat for more."`
	WaitForWorker bool          `use:"" help:"Queue the call until its deadline even if no worker currently serves the sandbox's provider. Default: refuse it."`
	Verbose       bool          `short:"v" use:"" help:"Print the call's id, conversation and status on stderr."`

	dir string
}

// Help returns the detailed help, for kong.
func (*callCommand) Help() string {
	return `The arguments of each tool:
  bash COMMAND                     one argument: quote the command
  read FILE
  write FILE CONTENT               CONTENT - reads it from stdin
  edit FILE OLD NEW
  glob PATTERN [FOLDER]
  grep PATTERN [FOLDER]
  ls [FOLDER]
  load_skill NAME                  a skill of the agent, or of the account: its files go into the workspace
  async_status ID [ACTION]         of a background job: status, logs, stop
or the whole input as JSON, with every option:
  sandjet call grep '{"pattern":"TODO","output_mode":"content","line_numbers":true}'

Examples:
  sandjet call bash 'echo hello; uname -a'
  sandjet call write notes/a.txt 'first line'
  sandjet call read notes/a.txt
  sandjet call --id nightly-2026-11-20 --timeout 5m bash './report.sh'
  job=$(sandjet call --background bash 'make test') && sandjet jobs logs -f "$job"

Output appears as the command prints it, on stdout and stderr. Ctrl-C cancels the call and kills its whole
process tree; a second Ctrl-C exits at once.

Exit codes:
  0-255  the command's own; 128+n if signal n killed it
  1      a file tool failed             71   started, outcome unknown
  64     invalid request                75   a cap is reached, or the deadline passed
  65     the id is another call's       77   denied, or a wrong key
  66     not found                      124  timed out
  69     nothing is running there       130  cancelled
With --json the result is printed as JSON instead of the output, with the status.`
}

// AfterApply is called by kong once everything is parsed.
func (c *callCommand) AfterApply(root *cli) error {
	c.dir = clientDir(root.DataDir)
	return nil
}

// Run makes the call, prints its output as it arrives, and exits with its exit code.
func (c *callCommand) Run(ctx context.Context, t terminal) error {
	input, err := toolInput(schemas.Tool(c.Tool), c.Args, t.in)
	if err != nil {
		return err
	}
	if schemas.Tool(c.Tool) == schemas.ToolBash && unreadInput(t.in) {
		t.log.Warn("stdin is not passed to the command, write it to the workspace first: sandjet call write FILE -")
	}
	if c.Background {
		if input, err = inBackground(schemas.Tool(c.Tool), input); err != nil {
			return err
		}
	}
	group, err := c.group()
	if err != nil {
		return err
	}
	cl, err := c.open(ctx, c.dir, t.err)
	if err != nil {
		return err
	}
	agent := c.Agent
	if agent != "" {
		if agent, err = agentKind().id(ctx, cl, agent); err != nil {
			return err
		}
	}
	r := schemas.Request{
		ID: schemas.CallID(c.ID), Agent: schemas.AgentID(agent), Conversation: schemas.ConversationID(c.Conversation),
		Tool: schemas.Tool(c.Tool), Input: input,
		Workspace: c.Workspace, Sandbox: c.Sandbox, Timeout: schemas.Duration(c.Timeout),
		Origin: &schemas.Origin{Kind: "api"}, Group: group, WaitForWorker: c.WaitForWorker, Artifacts: c.Artifacts,
	}
	switch {
	case c.Deadline < 0:
		return schemas.Invalidf("deadline", "%s is not after now: give a duration such as 90s", c.Deadline)
	case c.Deadline > 0:
		r.Deadline = time.Now().Add(c.Deadline).UTC()
	}
	if r.ID == "" {
		r.ID = schemas.NewCallID()
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

// group returns the group that the flags name; nil if they name none.
func (c *callCommand) group() (*schemas.GroupRef, error) {
	switch {
	case c.Group == "" && c.GroupSize == 0:
		return nil, nil //nolint:nilnil // most calls have none
	case c.Group == "" || c.GroupSize == 0:
		return nil, schemas.Invalidf("group", "--group and --group-size belong together: give both or neither")
	case !c.Background:
		return nil, schemas.Invalidf("group", "is for background jobs: add --background")
	}
	g := &schemas.GroupRef{ID: c.Group, Size: c.GroupSize}
	return g, g.Validate()
}
