package providers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// Provider runs commands in sandboxes.
type Provider interface {
	// Run runs cmd and blocks until it has ended and all its output was handed to cmd.Output. It
	// may be called from many goroutines. Cancelling ctx kills the command's whole process tree
	// before Run returns; what was printed until then is in the Result beside the error.
	//
	// Codes: unsupported (the profile cannot keep cmd's rules: nothing was started), not_found (the box of cmd.Sandbox is gone: nothing was
	// started, reserve again), exhausted and unavailable (nothing was started, try later), interrupted (it was started, the outcome is
	// unknown; of a cancelled run: it may continue, since it could not be killed, see Profile.Unattended), context.Canceled (cancelled and
	// killed). Run never starts a command twice.
	Run(ctx context.Context, cmd Command) (Result, error)
}

// Command is one run: a script and the rules of its box. Except for Output and Begin it is plain data.
type Command struct {
	// ID names the run for a [RunEnder]: no two runs have the same. Empty: only Run's caller can end it.
	ID string
	// Script is the text of a bash script (POSIX sh where a box has no bash). It is never put into
	// any process's arguments when it is longer than 64 KiB.
	Script string
	Stdin  []byte
	// Dir is the working directory inside the box. Empty: the first mount's path, else /tmp.
	Dir string
	// Env is added to the cleared environment (PATH, HOME, TMPDIR, LANG, and USER and LOGNAME where a box has
	// them); these reserved names win.
	Env         map[string]string
	Timeout     time.Duration // from its start; 0: schemas.DefaultTimeout. At its end TERM, Grace, KILL to the whole tree
	Grace       time.Duration // 0: DefaultGrace
	OutputLimit int           // bytes kept of stdout and of stderr each; 0: schemas.DefaultOutputLimit
	// Output gets the output as it comes, in order for each stream, never concurrently, at most
	// schemas.MaxChunk bytes at a time, and nothing after Run has returned. It may block: that
	// slows the command down. Nil: not wanted. It is given everything, also what the Result drops.
	Output func(Chunk)
	// Begin is asked when everything is ready, right before the command starts. An error means that it must not start, and is what Run
	// returns. It may block for half a minute, and is asked again before each further attempt at a start. Nil: it may start.
	Begin   func() error
	Network schemas.Network
	Mounts  []Mount
	// Sandbox names the kept box to run in; the zero Ref means a fresh one, gone after the run.
	Sandbox schemas.Ref
	Spec    Spec // rules of the box, used when it has to be made
}

// MayBegin calls Begin, if it is set, and returns its error: the run must not be started then.
func (c Command) MayBegin() error {
	if c.Begin == nil {
		return nil
	}
	return c.Begin()
}

// Chunk is a piece of output. Data is valid until Output returns.
type Chunk struct {
	Stderr bool
	Data   []byte
}

// Mount binds the files of a workspace into the box, at Path.
type Mount struct {
	Namespace string // one path component that names the workspace's files, unique over all tenants
	ReadOnly  bool
	// Storage is where the files are: s3, or empty for where the provider keeps files.
	Storage string
}

// Path returns the mount's path in the box. If the box has a root of its own, the first mount is also at [WorkspacePath].
func (m Mount) Path() string { return "/mnt/workspaces/" + m.Namespace }

// WorkspacePath is the short name of a command's first mount, such as a symbolic link to its Path. The file
// tools take it and the mount's path for the same, and show absolute paths below it.
const WorkspacePath = "/workspace"

// Spec describes a box.
type Spec struct {
	Account schemas.AccountID // boxes of different accounts share nothing
	// Deployment names the log whose records speak of the box. A kept box carries it where the provider is a [Lister], so that those of
	// another deployment on the same engine or cluster are left alone. It is no rule: a box is not recreated for it.
	Deployment string
	// Sandbox is the record that the box is of; empty: none. It is no rule either: a provider may keep it with the box, to ask for
	// values that the record has now.
	Sandbox     schemas.SandboxID
	Network     schemas.Network
	Mounts      []Mount
	Env         map[string]string
	MemoryLimit int64 // bytes; 0: the provider's default
	Pids        int   // processes; 0: the provider's default
	CPUs        float64
	Disk        int64 // bytes of the box's own disk where the provider can bound it; 0: the provider's default
	// EphemeralHome says that the home of a kept box may be lost when the box is paused or its machine fails.
	EphemeralHome bool
	// MinIsolation refuses hosts that offer less: a level of the provider's Profile. Empty: any
	// level that the operator allowed.
	MinIsolation string
}

// Result is the result of a run.
type Result struct {
	Runtime   string // provider and level, e.g. "local/L3"
	ExitCode  int    // 128+n when killed by signal n; 124 when TimedOut
	TimedOut  bool
	OOMKilled bool
	Truncated bool // output above the limit was dropped from the middle
	Started   bool // the command was started, also when Run returns an error
	Duration  time.Duration
	Stdout    []byte // head and tail with a line between them that says what was dropped; cut at UTF-8 boundaries
	Stderr    []byte
	// StdoutBytes and StderrBytes count what was printed, dropped bytes included.
	StdoutBytes, StderrBytes int64
	// FullOutput is the path in the workspace of a file with the whole output, when Truncated and
	// the mount is writable. Empty: there is none.
	FullOutput string
	Isolation  *schemas.Isolation
	// Sandbox is the box in which it ran, when it is a kept one.
	Sandbox schemas.Ref
	// Notices are sentences for the caller: what was requested of the sandbox and is missing, though the operator lets it run.
	Notices []string
}

// Reserver is the capability to keep a box between runs.
type Reserver interface {
	// Reserve returns the box kept under key, making it when there is none. It is idempotent and may race with itself: all callers get the
	// same box. The Epoch differs when the box was recreated.
	Reserve(ctx context.Context, key string, spec Spec) (schemas.Ref, error)
	// Release ends the box and everything in it; the workspace's files stay. Releasing what is gone
	// is no error.
	Release(ctx context.Context, ref schemas.Ref) error
}

// RunEnder is the capability to end a run whose worker may have died, in a box that outlives workers.
type RunEnder interface {
	// EndRun kills all processes of the run with an id, in the box kept under key or in one of its own, and returns when none
	// is left. It is no error when there is none, and it may be done again, and by several at once. It blocks for half a minute at
	// most. Code unavailable: the box cannot be reached, or something stays; nothing is known of the run then.
	EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error
}

// RunLimit is how long a run is there at most, from its start, if it is not ended: its time and grace, and what a provider adds where it
// has lost sight of the run's worker.
const RunLimit = schemas.MaxTimeout + 2*time.Minute

// StartLimiter is the capability to say how long Run may take before the command starts, for making a sandbox or waiting for a free one.
// That time is not part of the command's timeout, which counts from the command's start.
type StartLimiter interface {
	StartLimit() time.Duration
}

// StartLimitOf returns how long a run of p may take to start, in addition to the seconds that every run has; 0 if p does not say.
func StartLimitOf(p Provider) time.Duration {
	if l, ok := As[StartLimiter](p); ok {
		return l.StartLimit()
	}
	return 0
}

// Pauser is the capability of a [Reserver] to pause a kept box between runs. The profile's Pause says what the box retains.
type Pauser interface {
	// Pause lets the box rest. Until the next Reserve under its key, which wakes it, runs in it are refused as not_found, and it is released
	// as any other. No run may be started in it meanwhile. Pausing what rests already or is gone is no error; a box that was made or woken
	// since, under another Epoch, is left alone.
	//
	// Codes: unavailable (try again), unsupported.
	Pause(ctx context.Context, ref schemas.Ref) error
}

// Filer is the capability to access a workspace's files directly, without a run. The file tools then work in the worker's process, outside
// of the box, while commands in the box may change the same files.
type Filer interface {
	// OpenWorkspace returns the files of the mount, made when absent; with m.ReadOnly every change is refused. It may
	// be called from many goroutines, and blocks until the files can be reached. The caller closes what it gets.
	//
	// Codes: invalid (the namespace is no name), unavailable (try later), unsupported (not this workspace: its file
	// tools run in the box).
	OpenWorkspace(ctx context.Context, account schemas.AccountID, m Mount) (workspacefs.FS, error)
}

// Profiler is the capability to report the provider's properties and limits.
type Profiler interface {
	// Profile is what the provider can do on this host: never more than its leaf declares.
	Profile() Profile
}

// Profile is the properties and limits of a provider, as data. A provider package states them twice: at compile time by a function
// Declared, the most that it can offer on any host; and by [Profiler] for the current host, which is the same or less.
type Profile = schemas.Profile

// As returns p, or the first provider that p wraps, as a T. All checks for a capability go through it.
func As[T any](p Provider) (T, bool) {
	for p != nil {
		if g, ok := p.(*guarded); ok {
			t, ok := As[T](g.inner)
			if ok {
				t = guardedAs(g, t)
			}
			return t, ok
		}
		if t, ok := p.(T); ok {
			return t, true
		}
		w, ok := p.(interface{ Unwrap() Provider })
		if !ok {
			break
		}
		p = w.Unwrap()
	}
	var none T
	return none, false
}

// ProfileOf returns p's profile; without one, a profile that promises nothing but Run.
func ProfileOf(p Provider) Profile {
	if f, ok := As[Profiler](p); ok {
		return f.Profile()
	}
	return Profile{Name: "unknown", MaxTimeout: schemas.Duration(schemas.MaxTimeout), MaxOutput: schemas.MaxOutputLimit}
}
