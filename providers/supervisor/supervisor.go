package supervisor

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

//go:embed supervisor.sh
var program string

const (
	startTimeout = time.Minute      // of the run that starts a job
	lookTimeout  = 30 * time.Second // of a run that looks or signals
	writeTimeout = 10 * time.Second // how long a job may take to read what is written to it
	maxGrace     = 5 * time.Minute  // of StopJob: its run has to fit under schemas.MaxTimeout
	maxKnown     = 4096             // boxes whose rules are remembered
)

// Options are the settings of [Wrap]. The zero value is ready to use.
type Options struct {
	// JobsDir is where jobs are kept inside of a box: an absolute path without line breaks. Empty:
	// .sandjet-jobs in HOME, or in TMPDIR where HOME is not writable.
	JobsDir string
	// RetryFirst and RetryMost bound the waits between attempts to report an end, which double:
	// 1 s and 60 s when zero. RetryFor is how long it is tried: 24 h when zero.
	RetryFirst, RetryMost, RetryFor time.Duration
}

func (o Options) filled() Options {
	for _, d := range []struct {
		value *time.Duration
		empty time.Duration
	}{
		{&o.RetryFirst, time.Second},
		{&o.RetryMost, time.Minute},
		{&o.RetryFor, 24 * time.Hour},
	} {
		if *d.value <= 0 {
			*d.value = d.empty
		}
	}
	return o
}

// Provider is a provider with jobs. It is safe for concurrent use. It does not observe the ends of jobs itself: JobOptions.Notify is not
// called. The wrapped provider's other capabilities are available through [providers.As].
type Provider struct {
	inner providers.Provider
	o     Options

	mu    sync.Mutex
	known map[schemas.Ref]rules
}

// rules are the rules of a box in which a job was started. Further runs must repeat them.
type rules struct {
	network schemas.Network
	mounts  []providers.Mount
	spec    providers.Spec
}

var (
	_ providers.Provider      = (*Provider)(nil)
	_ providers.JobStarter    = (*Provider)(nil)
	_ providers.JobController = (*Provider)(nil)
)

// Wrap returns p with jobs: p itself if it has them already, or has no persistent boxes for them.
func Wrap(p providers.Provider, o Options) providers.Provider {
	if _, ok := providers.As[providers.JobStarter](p); ok {
		return p
	}
	if _, ok := providers.As[providers.Reserver](p); !ok {
		return p
	}
	return &Provider{inner: p, o: o.filled(), known: map[schemas.Ref]rules{}}
}

// Run runs cmd by the wrapped provider.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	return p.inner.Run(ctx, cmd)
}

// Unwrap returns the wrapped provider.
func (p *Provider) Unwrap() providers.Provider { return p.inner }

// StartJob starts cmd by a run in the box. Further codes: unsupported (the box lacks a tool, which
// the message names), exhausted (the job's files cannot be written).
func (p *Provider) StartJob(ctx context.Context, id schemas.JobID, cmd providers.Command, o providers.JobOptions) (schemas.JobRef, error) {
	if err := p.check(id, cmd, o); err != nil {
		return schemas.JobRef{}, err
	}
	box := cmd.Sandbox
	if box.IsZero() {
		return schemas.JobRef{}, schemas.Invalidf("sandbox", "a job needs a persistent sandbox")
	}
	start := cmd
	start.Stdin = startInput(p.o, id, cmd, o)
	start.Timeout = startTimeout
	a, err := p.ask(ctx, "start job", start)
	if err != nil {
		return schemas.JobRef{}, err
	}
	if a.fields["instance"] == "" {
		return schemas.JobRef{}, schemas.OpErrorf(schemas.Interrupted, "start job", "the sandbox does not say what it has started")
	}
	p.remember(box, rules{cmd.Network, cmd.Mounts, cmd.Spec})
	return schemas.JobRef{Sandbox: box, ID: id, Instance: a.fields["instance"]}, nil
}

// check returns an error for values that the program's input cannot contain.
func (p *Provider) check(id schemas.JobID, cmd providers.Command, o providers.JobOptions) error {
	if err := id.Validate(); err != nil {
		return err
	}
	if d := p.o.JobsDir; d != "" && (!strings.HasPrefix(d, "/") || strings.ContainsAny(d, "\n\x00")) {
		return schemas.Invalidf("jobs_dir", "%q is not an absolute path on one line", schemas.Quotable(d))
	}
	if strings.Contains(cmd.Script, "\x00") {
		return schemas.Invalidf("script", "NUL is not allowed")
	}
	if c := o.Callback; c != nil {
		u, err := url.Parse(c.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !wire(c.URL) {
			return schemas.Invalidf("callback.url", "is not a plain http or https URL")
		}
		if c.Token == "" || !wire(c.Token) {
			return schemas.Invalidf("callback.token", "must be visible ASCII without quotes and backslashes")
		}
	}
	return nil
}

// wire reports whether s is valid in a header, in a URL and in a quoted setting of curl.
func wire(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7F || r == '"' || r == '\\' || r == '\'' })
}

// startInput returns the input of the verb start: one line per setting, then the script and the job's input.
func startInput(o Options, id schemas.JobID, cmd providers.Command, with providers.JobOptions) []byte {
	lifetime, grace := cmd.Timeout, cmd.Grace
	if lifetime <= 0 {
		lifetime = schemas.DefaultJobLifetime
	}
	if grace <= 0 {
		grace = providers.DefaultGrace
	}
	var c providers.Callback
	if with.Callback != nil {
		c = *with.Callback
	}
	var b strings.Builder
	fmt.Fprintf(&b, "start\n%s\n%s\n", o.JobsDir, id)
	fmt.Fprintf(&b, "%d %d %d %d %d %d %d\n", schemas.MaxJobOutput, ticks(lifetime), ticks(grace), schemas.MaxJobLogs,
		ticks(o.RetryFirst), ticks(o.RetryMost), ticks(o.RetryFor))
	fmt.Fprintf(&b, "%s\n%s\n%d\n", c.URL, c.Token, len(cmd.Script))
	b.WriteString(cmd.Script)
	b.Write(cmd.Stdin)
	return []byte(b.String())
}

// ticks returns d in the program's unit, hundredths of a second, and at least one.
func ticks(d time.Duration) int64 { return max(1, int64(d/(10*time.Millisecond))) }

// launcher returns the script of every run. Any shell can run it; it reports if there is no bash.
func launcher() string {
	return "command -v bash >/dev/null 2>&1 || { echo 'bash is missing' >&2; exit 91; }\n" +
		"exec bash -c '" + strings.ReplaceAll(program, "'", `'\''`) + "' sandjet-job\n"
}

// remember stores the rules of a box for the runs that control its jobs.
func (p *Provider) remember(box schemas.Ref, r rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxKnown {
		for old := range p.known { // any: a forgotten entry costs a provider that insists on rules one read at most
			delete(p.known, old)
			break
		}
	}
	p.known[box] = r
}

func (p *Provider) forget(box schemas.Ref) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, box)
}

// command returns a run of the program in a box in which jobs were started.
func (p *Provider) command(box schemas.Ref, timeout time.Duration, input []byte) providers.Command {
	p.mu.Lock()
	r := p.known[box]
	p.mu.Unlock()
	return providers.Command{
		Sandbox: box, Network: r.network, Mounts: r.mounts, Spec: r.spec, Dir: "/", Stdin: input, Timeout: timeout,
	}
}
