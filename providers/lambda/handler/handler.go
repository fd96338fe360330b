//go:build linux

package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/internal/capture"
	"github.com/sandjet/sandjet/providers/lambda/invocation"
	"github.com/sandjet/sandjet/schemas"
)

// searchPath is the PATH of commands.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const (
	// reserve is the time before the end of the function's that is kept for killing and answering.
	reserve = 2 * time.Second
	// drainFor is how long what was printed may take to be read when all who could print are gone.
	drainFor = 5 * time.Second
	// longestArgument is the longest script that is passed as an argument.
	longestArgument = 64 << 10
)

// Handler runs commands, one at a time: an execution environment has one invocation at a time.
type Handler struct {
	Workspaces string           // the folder of all workspaces; empty: the function has no file system
	Scratch    string           // commands may write here, and it is emptied after each; empty: /tmp
	Unconfined bool             // run commands also where the kernel cannot keep them from one another's workspaces
	Sync       func()           // after a command with a workspace; nil: sync(2)
	MaxABI     int              // of Landlock, for tests: see confine.LandlockRules
	Now        func() time.Time // nil: time.Now
	Log        *slog.Logger

	mu    sync.Mutex
	dirty bool // something of a command could not be ended
}

// Run runs the command of a request and returns when none of its processes is left. Ctx has the function's deadline; if it is cancelled
// the command ends as at its timeout. It never panics; errors are in the response.
func (h *Handler) Run(ctx context.Context, r invocation.Request) invocation.Response {
	h.mu.Lock()
	defer h.mu.Unlock()
	res := invocation.Response{Runtime: invocation.Runtimes()[strings.ToLower(r.Runtime)], Workspace: r.Namespace}
	now := time.Now
	if h.Now != nil {
		now = h.Now
	}
	if r.Late(now()) { // its sender counts on its end by now
		res.Code, res.Late = string(schemas.Unavailable), true
		res.SetErr([]byte("the command came later than it may be started"))
		return res
	}
	if err := h.run(ctx, r, &res); err != nil {
		code := schemas.CodeOf(err)
		if code != schemas.Invalid && code != schemas.Unsupported {
			code = schemas.Unavailable
		}
		res.OK, res.Code, res.ExitCode = false, string(code), nil
		res.SetErr([]byte(err.Error()))
	}
	return res
}

func (h *Handler) run(ctx context.Context, r invocation.Request, res *invocation.Response) (err error) {
	if h.dirty && !endAll(0) {
		return schemas.Errorf(schemas.Unavailable, "something of an earlier command in this environment cannot be ended")
	}
	h.dirty = false
	workspace, err := h.workspace(r)
	if err != nil {
		return err
	}
	scratch := cmp.Or(h.Scratch, os.TempDir())
	if err := empty(scratch); err != nil {
		return schemas.Wrap(schemas.Unavailable, "", "the scratch folder cannot be emptied", err)
	}
	defer func() {
		if err := empty(scratch); err != nil {
			h.log().Error("scratch folder not emptied, trying again before the next command", "error", err)
		}
	}()
	argv, err := h.furnish(r, scratch, workspace)
	if err != nil {
		return err
	}
	c := &command{request: r, out: capture.NewExcerpt(r.Limit()), err: capture.NewExcerpt(r.Limit()), env: environment(r.Env, scratch)}
	c.start = start{Dir: cmp.Or(r.Dir, workspace, scratch), Argv: argv, Sockets: r.Sockets, Unconfined: h.Unconfined && !r.Confine,
		MaxABI: h.MaxABI}
	c.start.ReadOnly, c.start.ReadWrite = rules(scratch, workspace, r)
	err = c.carryOut(ctx)
	h.dirty = c.left
	if r.Namespace != "" && c.began {
		h.sync()
	}
	if err != nil {
		return err
	}
	c.fill(res)
	return nil
}

// workspace returns the folder of a request's workspace, making it if it is absent; empty if the request has no workspace.
func (h *Handler) workspace(r invocation.Request) (string, error) {
	switch {
	case r.Namespace == "":
		return "", nil
	case h.Workspaces == "":
		return "", schemas.Errorf(schemas.Unsupported, "this function has no file system, which workspaces need")
	case r.WorkspaceRoot != "" && filepath.Clean(r.WorkspaceRoot) != filepath.Clean(h.Workspaces):
		return "", schemas.Invalidf("workspace_root", "is %s in this function", h.Workspaces)
	}
	dir := filepath.Join(h.Workspaces, r.Namespace)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", schemas.Wrap(schemas.Unavailable, "", "the workspace cannot be made", err)
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", schemas.Wrap(schemas.Unavailable, "", "the workspace is no folder", err)
	}
	return dir, nil
}

// furnish fills the scratch folder for a command, and returns the command's arguments.
func (h *Handler) furnish(r invocation.Request, scratch, workspace string) ([]string, error) {
	fail := func(err error) ([]string, error) {
		return nil, schemas.Wrap(schemas.Unavailable, "", "the scratch folder cannot be filled", err)
	}
	if err := os.Mkdir(filepath.Join(scratch, "home"), 0o700); err != nil {
		return fail(err)
	}
	if workspace != "" { // the image has a link to this one
		if err := os.Symlink(workspace, filepath.Join(scratch, "workspace")); err != nil {
			return fail(err)
		}
	}
	name := invocation.Runtimes()[strings.ToLower(r.Runtime)]
	if name == "bash" && len(r.Script()) <= longestArgument {
		path, err := find("bash")
		return append([]string{path, "-c", "--", r.Script(), "bash"}, r.Args...), err
	}
	dir, err := os.MkdirTemp(scratch, ".run-") // of this user alone, and in no workspace
	if err != nil {
		return fail(err)
	}
	file := filepath.Join(dir, "script"+map[string]string{"python": ".py", "uv": ".py", "node": ".mjs"}[name])
	if name == "node" && !moduleSyntax.MatchString(r.Script()) {
		file = filepath.Join(dir, "script.cjs")
	}
	if err := os.WriteFile(file, []byte(r.Script()), 0o600); err != nil {
		return fail(err)
	}
	before := map[string][]string{"bash": {"bash", "--"}, "python": {"python3"}, "node": {"node"}, "uv": {"uv", "run", "--no-project"}}[name]
	path, err := find(before[0])
	return append(append(append([]string{path}, before[1:]...), file), r.Args...), err
}

// moduleSyntax is a line that begins as only those of modules do: other scripts have require, and no await outside functions.
var moduleSyntax = regexp.MustCompile(`(?m)^\s*(import\s*["'{*]|import\s+\w|export\s*[{*]|export\s+\w)`)

// find returns the path of a program, in the search path of commands.
func find(name string) (string, error) {
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", schemas.Errorf(schemas.Unsupported, "the function's image has no %s", name)
}

// environment returns a command's variables. Reserved ones take precedence.
func environment(declared map[string]string, scratch string) []string {
	env := maps.Clone(declared)
	if env == nil {
		env = map[string]string{}
	}
	env["PATH"], env["HOME"], env["TMPDIR"], env["LANG"] = searchPath, filepath.Join(scratch, "home"), scratch, "C.UTF-8"
	env["USER"], env["LOGNAME"] = "sandbox", "sandbox"
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

// rules returns the files that a command may use.
func rules(scratch, workspace string, r invocation.Request) (readOnly, readWrite []string) {
	there := func(paths ...string) (found []string) {
		for _, p := range paths {
			if _, err := os.Stat(p); err == nil {
				found = append(found, p)
			}
		}
		return found
	}
	readOnly = there("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt", "/proc",
		"/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
	readWrite = append(there("/dev/null"), scratch)
	switch {
	case workspace == "":
	case r.ReadOnly:
		readOnly = append(readOnly, workspace)
	default:
		readWrite = append(readWrite, workspace)
	}
	return readOnly, readWrite
}

// empty removes the content of a folder, also files that a command has made unreadable.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if os.RemoveAll(path) == nil {
			continue
		}
		_ = filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700) //nolint:gosec // RemoveAll says whether it helped
			}
			return err
		})
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

func (h *Handler) sync() {
	if h.Sync != nil {
		h.Sync()
		return
	}
	unix.Sync()
}

func (h *Handler) log() *slog.Logger {
	if h.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return h.Log
}

// command is a command in progress.
type command struct {
	request  invocation.Request
	start    start
	env      []string
	out, err *capture.Excerpt
	began    bool
	left     bool // something of it stays
	timedOut bool
	duration time.Duration
	state    *os.ProcessState
	holds    []string
}

// carryOut starts the command, and returns when none of its processes is left. After an error nothing was started.
func (c *command) carryOut(ctx context.Context) error {
	limit := c.request.Timeout()
	if end, ok := ctx.Deadline(); ok {
		if limit = min(limit, time.Until(end)-c.request.Grace()-reserve); limit <= 0 {
			return schemas.Errorf(schemas.Unavailable, "too little of the function's time is left to start a command")
		}
	}
	p, err := launch(c.start, c.env)
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "", "no process can be made", err)
	}
	began := time.Now()
	var streams sync.WaitGroup
	streams.Go(func() { feed(p.stdin, c.request.Stdin) })
	streams.Go(func() { drain(p.stdout, c.out) })
	streams.Go(func() { drain(p.stderr, c.err) })
	over := make(chan struct{})
	streams.Go(func() {
		_ = p.cmd.Wait() // how it ended is in its state
		close(over)
	})
	wrong := p.awaitExec(&c.holds)
	c.began = wrong == nil
	if c.began {
		c.timedOut = c.await(ctx, over, limit, p.cmd.Process.Pid)
	}
	c.left = !endAll(p.cmd.Process.Pid)
	c.duration = time.Since(began)
	p.finish(&streams)
	c.state = p.cmd.ProcessState
	return wrong
}

// await waits for the command to end, at most for its time limit and grace period, and reports whether the time limit was reached.
func (c *command) await(ctx context.Context, over <-chan struct{}, limit time.Duration, pid int) (timedOut bool) {
	clock := time.NewTimer(limit)
	defer clock.Stop()
	select {
	case <-over:
		return false
	case <-ctx.Done():
	case <-clock.C:
	}
	_ = unix.Kill(-pid, unix.SIGTERM) // it may have ended
	clock.Reset(c.request.Grace())
	select {
	case <-over:
	case <-clock.C:
	}
	return true
}

// fill sets in a response how the command ended.
func (c *command) fill(res *invocation.Response) {
	res.OK, res.TimedOut, res.DurationMS, res.Confined = true, c.timedOut, (c.duration + time.Millisecond - 1).Milliseconds(), c.holds
	res.SetOut(c.out.Bytes())
	res.SetErr(c.err.Bytes())
	res.StdoutTotal, res.StderrTotal = c.out.Total(), c.err.Total()
	res.Truncated = c.out.Truncated() || c.err.Truncated()
	if c.state == nil {
		return
	}
	res.CPUMicros = (c.state.UserTime() + c.state.SystemTime()).Microseconds()
	if c.timedOut {
		return
	}
	if status, ok := c.state.Sys().(syscall.WaitStatus); ok {
		code := status.ExitStatus()
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
		res.ExitCode = &code
	}
}

// process is a program that is becoming the command.
type process struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File // this side's
	status                *os.File
}

// launch starts the program that becomes the command.
func launch(s start, env []string) (*process, error) {
	plan, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("say what to start: %w", err)
	}
	p := &process{cmd: exec.Command("/proc/self/exe")} //nolint:noctx // it is ended with all that it starts
	p.cmd.Args = []string{entryName, string(plan)}
	p.cmd.Env = env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var theirs []*os.File
	pipe := func(mine **os.File, input bool) *os.File {
		r, w, failed := os.Pipe()
		if failed != nil {
			err = errors.Join(err, failed)
			return nil
		}
		own, other := r, w
		if input {
			own, other = w, r
		}
		*mine, theirs = own, append(theirs, other)
		return other
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = pipe(&p.stdin, true), pipe(&p.stdout, false), pipe(&p.stderr, false)
	p.cmd.ExtraFiles = []*os.File{pipe(&p.status, false)}
	if err == nil {
		err = p.cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// awaitExec waits until the program has become the command, and returns an error if it cannot.
func (p *process) awaitExec(holds *[]string) error {
	lines := json.NewDecoder(p.status)
	for {
		var w word
		switch err := lines.Decode(&w); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return schemas.Wrap(schemas.Unavailable, "", "the start of the command was not heard", err)
		case w.Dir:
			return schemas.OpErrorf(schemas.Invalid, "dir", "%s", w.Wrong)
		case w.Wrong != "":
			return schemas.Errorf(schemas.Unsupported, "the command cannot be started: %s", w.Wrong)
		default:
			*holds = append(*holds, w.Holds)
		}
	}
}

// finish waits until all output is read, at most for drainFor.
func (p *process) finish(streams *sync.WaitGroup) {
	end := time.Now().Add(drainFor)
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		_ = f.SetDeadline(end) // a pipe has deadlines
	}
	streams.Wait()
	p.close()
}

func (p *process) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr, p.status} {
		if f != nil {
			_ = f.Close() // it may be closed already
		}
	}
}

// feed writes the command's input. A command need not read all of it.
func feed(w *os.File, b []byte) {
	_, _ = w.Write(b)
	_ = w.Close()
}

func drain(r *os.File, into *capture.Excerpt) {
	b := make([]byte, 32<<10)
	for {
		n, err := r.Read(b)
		into.Add(b[:n])
		if err != nil {
			return
		}
	}
}
