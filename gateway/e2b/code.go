package e2b

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/notebook"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// execution is a parsed request to run code.
type execution struct {
	Code     string            `json:"code"`
	Context  string            `json:"context_id"` // empty: the default one
	Language string            `json:"language"`
	Env      map[string]string `json:"env_vars"`
}

// decodeExecution decodes a request to run code. Codes: invalid, unsupported.
func decodeExecution(body []byte) (in execution, err error) {
	if err := decode(body, &in); err != nil {
		return in, err
	}
	if err := checkLanguage(in.Language); err != nil {
		return in, err
	}
	if err := checkEnv("env_vars", in.Env); err != nil {
		return in, err
	}
	return in, checkCommand("code", in.Code)
}

func checkLanguage(name string) error {
	if name != "" && name != language {
		return unsupported("language: " + schemas.Quotable(name) + " is not served, but python; commands run anything else")
	}
	return nil
}

const (
	language  = "python"
	linesType = "application/x-ndjson"
	// kernelBegins is how long code waits for a kernel that begins, and kernelWait until it runs in one.
	kernelBegins = 5 * time.Second
	kernelWait   = 2 * time.Minute
	// maxProblems limits the error output of the program that asks a kernel, in bytes.
	maxProblems = 2 << 10
)

// codeError is an error that is reported to the client as the last line of its output, if code could not be run to its end for a reason of
// the sandbox's.
type codeError struct{ name, message string }

func (e codeError) Error() string { return e.name + ": " + e.message }

// codeInterpreter serves the code interpreter: it runs code in kernels of a sandbox and manages their contexts.
type codeInterpreter struct{ *base }

// execute runs code and streams its output until it ends. If the client disconnects, the code is cancelled.
func (f *codeInterpreter) execute(w http.ResponseWriter, r *http.Request, b *box) error {
	body, err := web.ReadBody(w, r, schemas.MaxRequest, "write the code into a file and run that")
	if err != nil {
		return err
	}
	in, err := decodeExecution(body)
	if err != nil {
		return err
	}
	l := &codeLines{stream: f.newStream(w, r, linesType)}
	err = f.held(w, r, b, func(ctx context.Context) error { return f.code(ctx, l, b, in) })
	e, own := errors.AsType[codeError](err)
	switch {
	case err == nil, !l.begun && !own, r.Context().Err() != nil:
		return err
	case l.half: // a reader of lines would take it for one
		f.brokenOff(w, r, err)
		panic(http.ErrAbortHandler)
	case !own:
		f.brokenOff(w, r, err)
		e = codeError{"SandboxError", sentence(w, err)}
	}
	_ = l.fail(e) // the client may have gone
	return nil
}

// codeLines is the response to a request to run code: one JSON value per line, as the kernel prints them.
type codeLines struct {
	*stream

	half     bool // the last write did not end with a whole line
	problems []byte
	ended    endEvent
}

func (l *codeLines) print(stderr bool, b []byte) error {
	if stderr { // of the program that asks the kernel: what the code writes there is on the lines
		l.problems = append(l.problems, b[:min(len(b), maxProblems-len(l.problems))]...)
		return nil
	}
	if len(b) == 0 {
		return nil
	}
	l.half = b[len(b)-1] != '\n'
	return l.push(b)
}

func (l *codeLines) end(e endEvent) error {
	l.ended = e
	return nil
}

func (l *codeLines) alive() error {
	if l.half {
		return nil
	}
	return l.push([]byte(`{"type":"keepalive"}` + "\n"))
}

func (l *codeLines) fail(e codeError) error {
	text, err := json.Marshal(struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}{"error", e.name, e.message, ""})
	if err != nil {
		return err
	}
	return l.push(append(text, '\n'))
}

// outcome interprets the exit of the program that sent the code to the kernel. Again is true if the code has not run because there was no
// kernel.
func (l *codeLines) outcome() (again bool, err error) {
	switch e := l.ended; {
	case !e.Exited:
		return false, codeError{"Interrupted", "the code was ended: " + cmp.Or(e.Error, e.Status)}
	case e.ExitCode == 0:
		return false, nil
	case e.ExitCode == notebook.ExitNoKernel:
		return true, nil
	case e.ExitCode == notebook.ExitKernelEnded:
		return false, codeError{"KernelEnded", "the Python of this context ended while it ran the code: what it had in memory is gone, " +
			"the next code begins in a new one"}
	case e.ExitCode == exitNotFound:
		return false, noPython()
	default:
		return false, schemas.Errorf(schemas.Unavailable, "the code was not run, exit code %d: %s", e.ExitCode,
			schemas.Quotable(string(bytes.ToValidUTF8(l.problems, []byte("\uFFFD")))))
	}
}

const exitNotFound = 127 // bash's exit code for a command that was not found

func noPython() error { return unsupported("the sandbox has no python3, without which running code") }

// code runs code in the kernel of its context, and starts a kernel if there is none.
func (f *codeInterpreter) code(ctx context.Context, l *codeLines, b *box, in execution) error {
	until, begun := time.Now().Add(kernelWait), 0
	for n := 1; ; n++ {
		session, c, err := f.kernel(ctx, b, in.Context, &begun)
		if err != nil {
			return err
		}
		again, err := f.runIn(ctx, l, b, session, c, in)
		if err != nil || !again {
			return err
		}
		in.Context = c.ID
		if time.Now().After(until) || !betweenLooks.Sleep(ctx, n) {
			return schemas.Errorf(schemas.Unavailable, "the Python of the context does not begin: run the code again, or restart the context")
		}
	}
}

// runIn runs code in a kernel. Again is true if the kernel was not there, and the code has not run.
func (f *codeInterpreter) runIn(ctx context.Context, l *codeLines, b *box, s schemas.SandboxSession, c schemas.CodeContext, in execution) (
	again bool, err error,
) {
	command, err := notebook.Ask(kernelName(b.id, c), kernelBegins, in.Env)
	if err != nil {
		return false, err
	}
	command = notebook.Feed("exec "+command, in.Code)
	if err := checkCommand("code", command); err != nil {
		return false, err
	}
	pid := newPID()
	call, err := f.submit(ctx, b, s, schemas.Request{
		ID: callOf(b.id, pid), Conversation: conversationOf(b.id, pid), Timeout: schemas.Duration(schemas.MaxTimeout),
	}, schemas.BashInput{Command: command})
	if err != nil {
		return false, err
	}
	if err = f.followCall(ctx, l, l.ping, b, call); err != nil {
		if errors.Is(context.Cause(ctx), context.Canceled) { // the client has left
			f.interrupt(ctx, call)
		}
		return false, err
	}
	return l.outcome()
}

// interrupt cancels the call of code whose client has disconnected.
func (f *codeInterpreter) interrupt(ctx context.Context, call schemas.Call) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := f.Calls.Cancel(ctx, call, "its client left")
	if err != nil && !errors.Is(err, schemas.ErrConflict) {
		f.Log.Warn("code of a disconnected client not interrupted", "account", call.Account, "call", call.ID, "error", err)
	}
}

func newPID() uint32 { return uint32(minPID + rand.Int32N(1<<31-1-minPID)) } // a name, no secret

// submit submits the call of a command in a sandbox.
func (f *base) submit(ctx context.Context, b *box, s schemas.SandboxSession, r schemas.Request, in schemas.BashInput) (schemas.Call, error) {
	text, err := schemas.EncodeJSON(in)
	if err != nil {
		return schemas.Call{}, schemas.Wrap(schemas.Internal, "start", "the input cannot be encoded", err)
	}
	r.Tool, r.Input, r.Workspace, r.Sandbox = schemas.ToolBash, text, string(s.Workspace), string(s.Sandbox)
	return f.Calls.Submit(ctx, b.account, r, queueing)
}
