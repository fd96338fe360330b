package providers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// Provider runs commands in sandboxes.
type Provider interface {
	// Run runs cmd and blocks until it has ended and all its output was passed to cmd.Output. It is safe for concurrent use. Cancelling
	// ctx kills all processes of the command before Run returns; the Result beside the error contains the output until then.
	//
	// Codes: unsupported (the provider cannot enforce cmd's rules; nothing was started), not_found (the sandbox cmd.Sandbox is gone;
	// nothing was started, reserve again), exhausted and unavailable (nothing was started, retry later), interrupted (it was started, and
	// the outcome is unknown; if ctx was cancelled, it may continue because it could not be killed, see Profile.Unattended),
	// context.Canceled (cancelled and killed). Run never starts a command twice.
	Run(ctx context.Context, cmd Command) (Result, error)
}

// Command is one run: a script and the rules of its sandbox. Except for Output and Begin it is plain data.
type Command struct {
	// ID identifies the run for a [RunEnder]; it must be unique. Empty: only the caller of Run can end the run.
	ID string
	// Script is a bash script (POSIX sh if the sandbox has no bash). If it is longer than 64 KiB it is never passed as an argument of a
	// process.
	Script string
	Stdin  []byte
	// Dir is the working directory in the sandbox. Empty: the path of the first mount, or /tmp if there is none.
	Dir string
	// Env is added to the cleared environment, which has PATH, HOME, TMPDIR, LANG, and if the sandbox has them USER and LOGNAME. Env
	// cannot replace these names.
	Env         map[string]string
	Timeout     time.Duration // from its start; 0: schemas.DefaultTimeout. At its end SIGTERM, and after Grace SIGKILL to all processes
	Grace       time.Duration // 0: DefaultGrace
	OutputLimit int           // bytes stored of stdout and of stderr each; 0: schemas.DefaultOutputLimit
	// Output receives all output while it is produced, including what the Result drops: in order within each stream, never concurrently,
	// at most schemas.MaxChunk bytes at a time, and nothing after Run has returned. It may block, which slows the command down. Nil: the
	// output is only in the Result.
	Output func(Chunk)
	// Begin is called when everything is prepared, right before the command starts. If it returns an error, the command is not started,
	// and Run returns that error. It may block for half a minute, and is called again before each further attempt to start. Nil: the
	// command may start.
	Begin   func() error
	Network schemas.Network
	Mounts  []Mount
	// Sandbox is the persistent sandbox to run in. Zero value: a new sandbox, which ends after the run.
	Sandbox schemas.Ref
	Spec    Spec // rules of the sandbox, if it has to be created
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
	Namespace string // a path component that identifies the workspace's files, unique over all tenants
	ReadOnly  bool
	// Storage is where the files are stored: s3, or empty for the provider's own storage.
	Storage string
}

// Path returns the mount's path in the sandbox. If the sandbox has a root file system of its own, the first mount is also at
// [WorkspacePath].
func (m Mount) Path() string { return "/mnt/workspaces/" + m.Namespace }

// WorkspacePath is a short name of a command's first mount, such as a symbolic link to its Path. The file tools treat it like the mount's
// path, and show absolute paths below it.
const WorkspacePath = "/workspace"

// Spec describes a sandbox.
type Spec struct {
	Account schemas.AccountID // sandboxes of different accounts share nothing
	// Deployment is the id of the deployment whose records describe the sandbox. If the provider is a [Lister], it stores the id with a
	// persistent sandbox, so that those of another deployment on the same engine or cluster are left alone. A sandbox is not recreated
	// because this field differs.
	Deployment string
	// Sandbox is the id of the record to which the sandbox belongs; empty: none. A provider may store it with the sandbox, to read the
	// record's current values. A sandbox is not recreated because this field differs.
	Sandbox     schemas.SandboxID
	Network     schemas.Network
	Mounts      []Mount
	Env         map[string]string
	MemoryLimit int64 // bytes; 0: the provider's default
	Pids        int   // processes; 0: the provider's default
	CPUs        float64
	Disk        int64 // bytes of the sandbox's own disk, if the provider can limit it; 0: the provider's default
	// EphemeralHome is whether the home folder of a persistent sandbox may be lost when the sandbox is paused or its machine fails.
	EphemeralHome bool
	// MinIsolation is the minimal level of isolation, a level of the provider's Profile: hosts that offer less are refused. Empty: any
	// level that the operator has allowed.
	MinIsolation string
}

// Result is the result of a run.
type Result struct {
	Runtime   string // provider and level, e.g. "local/L3"
	ExitCode  int    // 128+n if killed by signal n; 124 if TimedOut
	TimedOut  bool
	OOMKilled bool
	Truncated bool // output above the limit was dropped from the middle
	Started   bool // the command was started; also set if Run returns an error
	Duration  time.Duration
	Stdout    []byte // head and tail, with a line between them that says how much is missing; cut at UTF-8 boundaries
	Stderr    []byte
	// StdoutBytes and StderrBytes are the sizes of the output, including dropped bytes.
	StdoutBytes, StderrBytes int64
	// FullOutput is the path in the workspace of a file with the whole output, if Truncated is set and the mount is writable. Empty: there
	// is none.
	FullOutput string
	Isolation  *schemas.Isolation
	// Sandbox is the persistent sandbox in which the command ran.
	Sandbox schemas.Ref
	// Notices are sentences for the caller about requested properties of the sandbox that are missing although the operator allows the
	// run.
	Notices []string
}

// Reserver is the capability to keep a sandbox between runs.
type Reserver interface {
	// Reserve returns the persistent sandbox for key, and creates it if there is none. It is idempotent and safe for concurrent use: all
	// callers get the same sandbox. A recreated sandbox has another Epoch.
	Reserve(ctx context.Context, key string, spec Spec) (schemas.Ref, error)
	// Release ends the sandbox and everything in it; the workspace's files are not removed. If the sandbox does not exist, that is no
	// error.
	Release(ctx context.Context, ref schemas.Ref) error
}

// RunEnder is the capability to end a run whose worker may have died, in a sandbox that outlives workers.
type RunEnder interface {
	// EndRun kills all processes of the run with an id, in the persistent sandbox for key or in the run's own sandbox, and returns when
	// none is left. If there is none, that is no error. It is idempotent and safe for concurrent use. It blocks for half a minute at most.
	// Code: unavailable (the sandbox cannot be reached, or some processes could not be killed; nothing is known of the run then).
	EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error
}

// RunLimit is the maximal time for which a run exists, from its start, if it is not ended: its timeout and grace, and the time that a
// provider adds after it has lost contact to the run's worker.
const RunLimit = schemas.MaxTimeout + 2*time.Minute

// StartLimiter is the capability to report how long Run may take before the command starts, to create a sandbox or to wait for a free one.
// That time is not part of the command's timeout, which counts from the command's start.
type StartLimiter interface {
	StartLimit() time.Duration
}

// StartLimitOf returns how long a run of p may take to start, in addition to the seconds that every run has; 0 if p is not a
// [StartLimiter].
func StartLimitOf(p Provider) time.Duration {
	if l, ok := As[StartLimiter](p); ok {
		return l.StartLimit()
	}
	return 0
}

// Pauser is the capability of a [Reserver] to pause a persistent sandbox between runs. The profile's Pause describes what the sandbox
// retains.
type Pauser interface {
	// Pause pauses the sandbox. Until the next Reserve for its key, which resumes it, runs in it return not_found. Release ends it as any
	// other. The caller must not start a run in it meanwhile. Pausing a sandbox that is paused or gone is no error. A sandbox that was
	// recreated or resumed since, and so has another Epoch, is not paused.
	//
	// Codes: unavailable (retry), unsupported.
	Pause(ctx context.Context, ref schemas.Ref) error
}

// Filer is the capability to access a workspace's files directly, without a run. The file tools then work in the worker's process, outside
// of the sandbox, while commands in the sandbox may change the same files.
type Filer interface {
	// OpenWorkspace returns the files of the mount, which it creates if they do not exist. If m.ReadOnly is set, every change is refused.
	// It is safe for concurrent use, and blocks until the files can be reached. The caller closes the result.
	//
	// Codes: invalid (the namespace is invalid), unavailable (retry later), unsupported (the file tools of this workspace must run in the
	// sandbox).
	OpenWorkspace(ctx context.Context, account schemas.AccountID, m Mount) (workspacefs.FS, error)
}

// Profiler is the capability to report the provider's properties and limits.
type Profiler interface {
	// Profile returns what the provider can do on this host: never more than its package declares.
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

// ProfileOf returns p's profile; if p is not a [Profiler], a profile of a provider that supports only Run.
func ProfileOf(p Provider) Profile {
	if f, ok := As[Profiler](p); ok {
		return f.Profile()
	}
	return Profile{Name: "unknown", MaxTimeout: schemas.Duration(schemas.MaxTimeout), MaxOutput: schemas.MaxOutputLimit}
}
