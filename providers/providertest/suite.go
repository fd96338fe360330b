package providertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// timeouts returns the timeouts to try in a test whose run must reach a point in its script before its timeout: a loaded machine may take
// long for that.
func timeouts() []time.Duration {
	return []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second, 30 * time.Second}
}

// account owns every box of the suite.
const account schemas.AccountID = "acct_providertest"

// patience is how long a test waits for what has to come at once. It says when to fail, not how fast a provider is: that is a benchmark's
// business.
const patience = 90 * time.Second

// Test runs the suite: first the cases for every provider, then those for each of its capabilities; those of missing capabilities are
// skipped by name. Open makes a provider that is closed at the end of tb; it is called several times.
//
// When the suite ends, everything that it has started must have ended, which it checks.
func Test(t *testing.T, open func(tb testing.TB) providers.Provider, with ...Option) {
	t.Helper()
	p, o := open(t), optionsOf(with)
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"Run", runCases()},
		{"Output", outputCases()},
		{"End", endCases()},
		{"Profile", profileCases()},
		{"Isolation", isolationCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			o.only(t, group.name)
			o.runAll(t, p, slices.DeleteFunc(group.cases, func(c testCase) bool { return !o.has(group.name, c.name) }))
		})
	}
	capability(t, p, "Reserver", func(t *testing.T, r providers.Reserver) {
		o.only(t, "Reserver")
		for _, c := range reserveCases() {
			if !o.has("Reserver", c.name) {
				continue
			}
			o.run(t, c.name, func(t *testing.T) { c.run(t, newSubject(t, p), r) })
		}
	})
	capability(t, p, "Pauser", func(t *testing.T, q providers.Pauser) {
		o.only(t, "Pauser")
		r, ok := providers.As[providers.Reserver](p)
		if !ok || providers.ProfileOf(p).Pause == "" {
			t.Fatal("a provider that pauses kept boxes keeps some, and its profile says what stays in them")
		}
		for _, c := range pauseCases() {
			t.Run(c.name, func(t *testing.T) { c.run(t, newSubject(t, p), r, q) })
		}
	})
	capability(t, p, "Lister", func(t *testing.T, l providers.Lister) {
		o.only(t, "Lister")
		r, ok := providers.As[providers.Reserver](p)
		if !ok {
			t.Fatal("a provider that lists kept boxes keeps some: it is a Reserver")
		}
		for _, c := range listCases() {
			t.Run(c.name, func(t *testing.T) { c.run(t, newSubject(t, p), r, l) })
		}
	})
	capability(t, p, "Filer", func(t *testing.T, f providers.Filer) {
		o.only(t, "Filer")
		for _, c := range fileCases() {
			o.run(t, c.name, func(t *testing.T) { c.run(t, newSubject(t, p), f) })
		}
		RunFS(t, func(t *testing.T) Workspace { return newSubject(t, p).workspace(f) })
	})
	capability(t, p, "Jobs", func(t *testing.T, j providers.JobStarter) {
		o.only(t, "Jobs")
		runJobs(t, p, j, o)
	})
	capability(t, p, "Profiler", func(t *testing.T, f providers.Profiler) {
		t.Run("its facts agree with one another", func(t *testing.T) { checkProfile(t, p, f.Profile()) })
		t.Run("it promises no more than its leaf declares", func(t *testing.T) {
			if o.declared == nil {
				t.Skipf("%s declares nothing: say what with Declares", f.Profile().Name)
			}
			if err := f.Profile().Within(*o.declared); err != nil {
				t.Error(err)
			}
		})
	})
}

// Option states a property of a provider that the suite cannot find out.
type Option func(*options)

type options struct {
	groups   []string // of the suite's tests; empty: all
	notifies bool
	together bool
	declared *providers.Profile
}

// Declares sets the profile that the provider's package declares: the provider's own profile must not promise more.
func Declares(p providers.Profile) Option { return func(o *options) { o.declared = &p } }

// Notifies says that the provider observes the ends of its jobs: it must then report each exactly once.
func Notifies() Option { return func(o *options) { o.notifies = true } }

// Together runs the cases of a group in parallel, for a provider that allows many runs at a time.
func Together() Option { return func(o *options) { o.together = true } }

// Groups runs only some groups of the suite, by their names (Run, Output, End, Profile, Isolation, Reserver, Pauser, Lister, Filer,
// Jobs), and skips the others by name: for a second way of one provider, or the short form of a slow one, whose long form runs all. Of the
// first six and of Jobs, "Run/an exit code is a result" is that case alone.
func Groups(names ...string) Option { return func(o *options) { o.groups = names } }

// only skips the test unless its group was selected.
func (o options) only(t *testing.T, group string) {
	t.Helper()
	if !slices.ContainsFunc(o.groups, func(g string) bool { return g == group || strings.HasPrefix(g, group+"/") }) && len(o.groups) > 0 {
		t.Skipf("only %v of the suite are run here", o.groups)
	}
}

// has reports whether a case of a selected group was selected.
func (o options) has(group, name string) bool {
	return len(o.groups) == 0 || slices.Contains(o.groups, group) || slices.Contains(o.groups, group+"/"+name)
}

func optionsOf(with []Option) (o options) {
	for _, set := range with {
		set(&o)
	}
	return o
}

// TestJobs runs only the suite's part on jobs.
func TestJobs(t *testing.T, open func(tb testing.TB) providers.Provider, with ...Option) {
	t.Helper()
	p := open(t)
	capability(t, p, "Jobs", func(t *testing.T, j providers.JobStarter) { runJobs(t, p, j, optionsOf(with)) })
}

// testCase tests one guarantee of the interface, which is its name as a sentence.
type testCase struct {
	name string
	run  func(t *testing.T, s subject)
}

func (o options) runAll(t *testing.T, p providers.Provider, cases []testCase) {
	t.Helper()
	for _, c := range cases {
		o.run(t, c.name, func(t *testing.T) { c.run(t, newSubject(t, p)) })
	}
}

// run runs one case, in parallel to the others of its group if Together was set.
func (o options) run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if o.together {
			t.Parallel()
		}
		f(t)
	})
}

// capability runs f if p has the capability, and otherwise skips a test of its name, so that the report shows it.
func capability[T any](t *testing.T, p providers.Provider, name string, f func(t *testing.T, c T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		c, ok := providers.As[T](p)
		if !ok {
			t.Skipf("%T has no %s", p, name)
		}
		f(t, c)
	})
}

// subject is the provider under test with a workspace of the test's own.
type subject struct {
	providers.Provider

	profile providers.Profile
	mount   providers.Mount
	box     schemas.Ref  // that commands are run in; the zero Ref: fresh ones
	keeps   *schemas.Ref // the box that the test keeps
}

func newSubject(t *testing.T, p providers.Provider) subject {
	t.Helper()
	return subject{
		Provider: p,
		profile:  providers.ProfileOf(p),
		mount:    providers.Mount{Namespace: schemas.Namespace(account, schemas.WorkspaceID(t.Name()))},
		keeps:    &schemas.Ref{},
	}
}

// together returns a subject whose concurrent runs share their workspace: if a workspace can be in only one sandbox at a time, they all
// run in one persistent box.
func (s subject) together(t *testing.T) subject {
	t.Helper()
	if !s.profile.ExclusiveWorkspaces {
		return s
	}
	r, ok := providers.As[providers.Reserver](s.Provider)
	if !ok {
		t.Skipf("%s has a workspace in one sandbox at a time, and keeps none", s.profile.Name)
	}
	s.box = s.keep(t, r)
	return s
}

// isolates reports whether the provider isolates at all.
func (s subject) isolates() bool {
	return s.profile.Isolation.Level != "" && s.profile.Isolation.Level != "L0"
}

// hasRoot reports whether a box has a root directory of its own. At level L2 it sees the host's, and
// landlock has no right for changing a file's mode.
func (s subject) hasRoot() bool { return s.isolates() && s.profile.Isolation.Level != "L2" }

func (s subject) needIsolation(t *testing.T) {
	t.Helper()
	if !s.isolates() {
		t.Skipf("%s isolates nothing", s.profile.Name)
	}
}

// needLiveRuns skips a test that reads the output of a run, or ends it, before its end.
func (s subject) needLiveRuns(t *testing.T) {
	t.Helper()
	if s.profile.Unattended {
		t.Skipf("%s neither hears nor ends a run before its end", s.profile.Name)
	}
}

// long returns the longest timeout that the suite may use.
func (s subject) long() time.Duration {
	return min(10*time.Minute, time.Duration(s.profile.MaxTimeout))
}

// spec returns the spec of the suite's boxes.
func (s subject) spec() providers.Spec {
	return providers.Spec{Account: account, Network: schemas.Network{Mode: schemas.DenyAll}, Mounts: []providers.Mount{s.mount}}
}

// command returns a command with script, in a fresh box with the test's workspace.
func (s subject) command(script string) providers.Command {
	spec := s.spec()
	return providers.Command{Script: script, Timeout: patience, Network: spec.Network, Mounts: spec.Mounts, Spec: spec, Sandbox: s.box}
}

// run runs cmd, which must be carried out to its end.
func (s subject) run(t *testing.T, cmd providers.Command) providers.Result {
	t.Helper()
	res, err := s.Run(t.Context(), cmd)
	if err != nil {
		t.Fatalf("Run: %v (stderr %q)", err, res.Stderr)
	}
	if !res.Started {
		t.Fatalf("Run succeeded and says that nothing was started: %+v", res)
	}
	return res
}

// another returns a subject for a second box beside one of the test: with another workspace if one workspace cannot be in both.
func (s subject) another() subject {
	if s.profile.ExclusiveWorkspaces {
		s.mount.Namespace += "-2"
	}
	return s
}

// sh runs script, which must succeed, and returns its output without the last newline. If a workspace can be in only one sandbox at a
// time, the script runs in the test's persistent box, if there is one.
func (s subject) sh(t *testing.T, script string) string {
	t.Helper()
	cmd := s.command(script)
	if s.profile.ExclusiveWorkspaces && !s.keeps.IsZero() {
		cmd.Sandbox = *s.keeps
		res, err := s.Run(t.Context(), cmd)
		if err == nil && res.ExitCode == 0 {
			return strings.TrimSuffix(string(res.Stdout), "\n")
		}
		if schemas.CodeOf(err) != schemas.NotFound {
			t.Fatalf("exit code %d, %v (stdout %q, stderr %q)", res.ExitCode, err, res.Stdout, res.Stderr)
		}
		cmd.Sandbox = schemas.Ref{} // it was released
	}
	return s.ok(t, cmd)
}

// timedOut runs cmd until its timeout. It tries longer timeouts until the run has printed begun.
func (s subject) timedOut(t *testing.T, cmd providers.Command, begun string) (res providers.Result) {
	t.Helper()
	for _, cmd.Timeout = range timeouts() {
		res = s.run(t, cmd)
		if strings.Contains(string(res.Stdout)+string(res.Stderr), begun) {
			break
		}
	}
	want(t, "TimedOut", res.TimedOut, true)
	want(t, "exit code", res.ExitCode, 124)
	if res.Duration < cmd.Timeout || res.Duration > cmd.Timeout+patience {
		t.Errorf("duration %v at a timeout of %v", res.Duration, cmd.Timeout)
	}
	return res
}

// ok runs cmd, which must succeed, and returns what it printed without the last newline.
func (s subject) ok(t *testing.T, cmd providers.Command) string {
	t.Helper()
	res := s.run(t, cmd)
	if res.ExitCode != 0 {
		t.Fatalf("exit code %d, want 0 (stdout %q, stderr %q)", res.ExitCode, res.Stdout, res.Stderr)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n")
}

// want fails the test when got is not what was wanted.
func want[T comparable](t *testing.T, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %v, want %v", what, got, wanted)
	}
}

// wantCode fails the test when err does not carry the code.
func wantCode(t *testing.T, err error, code schemas.Code) {
	t.Helper()
	if got := schemas.CodeOf(err); err == nil || got != code {
		t.Errorf("got error %v (code %q), want code %q", err, got, code)
	}
}

// outcome is the result of a Run in another goroutine.
type outcome struct {
	res providers.Result
	err error
}

// start runs cmd in the background.
func (s subject) start(ctx context.Context, cmd providers.Command) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		res, err := s.Run(ctx, cmd)
		done <- outcome{res, err}
	}()
	return done
}

// receive waits for a value, and fails the test if none arrives in time.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come within %v", what, patience)
		panic("unreachable")
	}
}

// hearing is an Output function that reports when a word has been printed.
type hearing struct {
	word    string
	arrived chan struct{}

	mu   sync.Mutex
	text strings.Builder
	once sync.Once
}

func listenFor(word string) *hearing { return &hearing{word: word, arrived: make(chan struct{})} }

func (h *hearing) output(c providers.Chunk) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text.Write(c.Data)
	if strings.Contains(h.text.String(), h.word) {
		h.once.Do(func() { close(h.arrived) })
	}
}

// beating is a script whose last processes, double-forked into a session of their own and deaf to TERM,
// append to the workspace's file "beats" for as long as they live: one that stays, and a chain in which each
// process starts the next one and ends. It prints "beating" when they do.
const beating = `
beat() { trap '' TERM HUP INT; while :; do echo x >>beats; sleep 0.05; done; }
link() { trap '' TERM HUP INT; echo x >>beats; sleep 0.01; link & }
export -f beat link
( setsid bash -c beat >/dev/null 2>&1 </dev/null & )
( setsid bash -c link >/dev/null 2>&1 </dev/null & )
until [ -s beats ]; do sleep 0.01; done
echo beating
`

// wantSilence fails the test when the file "beats" still grows.
func (s subject) wantSilence(t *testing.T) {
	t.Helper()
	// The pause is what is measured: how long nothing happens. A loaded machine makes it longer.
	sizes := strings.Fields(s.sh(t, "wc -c <beats; sleep 0.5; wc -c <beats"))
	if len(sizes) != 2 || sizes[0] != sizes[1] {
		t.Errorf("a process of the run still lives: its file grew (sizes %q)", sizes)
	}
}

// isCancelled reports whether err is the context's own.
func isCancelled(err error) bool { return errors.Is(err, context.Canceled) }
