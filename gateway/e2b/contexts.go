package e2b

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/gateway/notebook"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// A context is a line in the record of its sandbox, and a kernel: a background job that runs code. The record says which one is its
// present kernel, by a number from which the id of the job's call follows. So any gateway finds it, two that begin it at once begin one,
// and where it has ended, with its worker, its sandbox's idle time or by the code, the next number is the next kernel.

// kernelName returns the name of the present kernel of a context, unique among all sandboxes.
func kernelName(sandbox string, c schemas.CodeContext) string {
	return sandbox + "-" + c.ID + "-" + strconv.Itoa(c.Kernel)
}

func kernelCall(sandbox string, c schemas.CodeContext) schemas.CallID {
	return schemas.CallID(callBegin + kernelName(sandbox, c))
}

// findContext returns the index of the context with an id, or of the default context if id is empty; -1 if there is none.
func findContext(list []schemas.CodeContext, id string) int {
	return slices.IndexFunc(list, func(c schemas.CodeContext) bool { return id == "" && c.Default || id != "" && c.ID == id })
}

func noContext(id string) error {
	return schemas.Errorf(schemas.NotFound, "context %q not found", schemas.Quotable(id))
}

// newContext returns a copy of the list with c added, and c with its id. Code: exhausted.
func newContext(list []schemas.CodeContext, c schemas.CodeContext) ([]schemas.CodeContext, schemas.CodeContext, error) {
	if len(list) >= schemas.MaxCodeContexts {
		return list, c, schemas.Errorf(schemas.Exhausted, "the sandbox has %d contexts, the most it may: remove one", len(list))
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	c.ID, c.Kernel = hex.EncodeToString(b[:]), 1
	return append(slices.Clip(list), c), c, nil
}

// change changes the contexts of a sandbox. change may be called more than once.
func (f *codeInterpreter) change(ctx context.Context, b *box, change func(list []schemas.CodeContext) ([]schemas.CodeContext, error)) (
	schemas.SandboxSession, error,
) {
	s, err := f.Sessions.Change(ctx, b.account, b.id, func(l *schemas.SandboxLease) (err error) {
		l.Contexts, err = change(slices.Clone(l.Contexts))
		return err
	})
	return s, gone(err)
}

// gone replaces not_found by the error that clients expect for a sandbox that does not exist.
func gone(err error) error {
	if errors.Is(err, schemas.ErrNotFound) {
		return errGone
	}
	return err
}

// kernel ensures that a context has a kernel, and that the sandbox is active. begun is the number of the kernel that this request has
// started, 0 if none: if that one has ended, it is not started again. Codes: not_found (the context), those of a job that could not begin.
func (f *codeInterpreter) kernel(ctx context.Context, b *box, id string, begun *int) (s schemas.SandboxSession, c schemas.CodeContext, err error) {
	if s, err = f.Sessions.Enter(ctx, b.account, b.id); err != nil {
		return s, c, gone(err)
	}
	for {
		i := findContext(s.Lease.Contexts, id)
		if i < 0 && id != "" {
			return s, c, noContext(id)
		}
		if i < 0 {
			s, err = f.change(ctx, b, func(list []schemas.CodeContext) ([]schemas.CodeContext, error) {
				if findContext(list, "") >= 0 { // another request was quicker
					return list, nil
				}
				list, _, err := newContext(list, schemas.CodeContext{Default: true})
				return list, err
			})
			if err != nil {
				return s, c, err
			}
			continue
		}
		c = s.Lease.Contexts[i]
		call, err := f.Calls.Find(ctx, b.account, kernelCall(b.id, c))
		if errors.Is(err, schemas.ErrNotFound) {
			*begun = c.Kernel
			call, err = f.begin(ctx, b, s, c)
		}
		if err != nil {
			return s, c, err
		}
		ended, err := f.over(ctx, call)
		if err != nil || !ended {
			return s, c, err
		}
		if c.Kernel == *begun {
			return s, c, f.whyEnded(ctx, b, call)
		}
		if s, err = f.nextKernel(ctx, b, c); err != nil {
			return s, c, err
		}
		id = c.ID
	}
}

// begin starts the kernel of a context.
func (f *codeInterpreter) begin(ctx context.Context, b *box, s schemas.SandboxSession, c schemas.CodeContext) (schemas.Call, error) {
	return f.submit(ctx, b, s, schemas.Request{
		ID: kernelCall(b.id, c), Conversation: schemas.ConversationID("e2b:" + kernelName(b.id, c)),
	}, schemas.BashInput{Command: prelude(s.Lease.Env, dirOf(c.Dir)) + notebook.Kernel(kernelName(b.id, c)), Background: true})
}

// nextKernel advances the context to a new kernel, unless another request has done so.
func (f *codeInterpreter) nextKernel(ctx context.Context, b *box, c schemas.CodeContext) (schemas.SandboxSession, error) {
	return f.change(ctx, b, func(list []schemas.CodeContext) ([]schemas.CodeContext, error) {
		if i := findContext(list, c.ID); i >= 0 && list[i].Kernel == c.Kernel { // no other request has seen to it
			list[i].Kernel++
		}
		return list, nil
	})
}

// whyEnded returns the error for a kernel that ended while it started.
func (f *codeInterpreter) whyEnded(ctx context.Context, b *box, call schemas.Call) error {
	job, err := f.Calls.Job(ctx, b.account, call.Job)
	if errors.Is(err, schemas.ErrNotFound) { // the call has ended without a job, and says why
		err = f.followCall(ctx, unseen{}, time.Minute, b, call)
		return cmp.Or(err, schemas.Errorf(schemas.Unavailable, "the Python of the context did not begin"))
	}
	if err != nil {
		return err
	}
	end, said := job.Completion, ""
	if end != nil {
		if said = cmp.Or(end.Reason, end.Logs); end.ExitCode != nil && *end.ExitCode == exitNotFound {
			return noPython()
		}
	}
	return codeError{"KernelFailed", "the Python of the context ended as it began, in state " + string(job.State) + ": " + schemas.Quotable(said)}
}

// unseen is a viewer that discards the output of a process.
type unseen struct{}

func (unseen) print(bool, []byte) error { return nil }
func (unseen) end(endEvent) error       { return nil }
func (unseen) alive() error             { return nil }

// shownContext is a context in responses to clients.
type shownContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Dir      string `json:"cwd"`
}

func shown(c schemas.CodeContext) shownContext {
	return shownContext{c.ID, language, cmp.Or(c.Dir, home)}
}

// contexts lists the contexts of a sandbox.
func (f *codeInterpreter) contexts(w http.ResponseWriter, _ *http.Request, b *box) error {
	out := make([]shownContext, len(b.session.Lease.Contexts))
	for i, c := range b.session.Lease.Contexts {
		out[i] = shown(c)
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}

// decodeContext decodes a request for a new context. Codes: invalid, unsupported.
func decodeContext(body []byte) (c schemas.CodeContext, err error) {
	var in struct {
		Language string `json:"language"`
		Dir      string `json:"cwd"`
	}
	if err := decode(body, &in); err != nil {
		return c, err
	}
	if err := checkLanguage(in.Language); err != nil {
		return c, err
	}
	if len(in.Dir) > schemas.MaxFilePath {
		return c, schemas.Invalidf("cwd", "has %d bytes: at most %d", len(in.Dir), schemas.MaxFilePath)
	}
	return schemas.CodeContext{Dir: in.Dir}, checkCommand("cwd", in.Dir)
}

// createContext adds a context. Its kernel is started with the first code.
func (f *codeInterpreter) createContext(w http.ResponseWriter, r *http.Request, b *box) error {
	body, err := web.ReadBody(w, r, schemas.MaxRequest, "name a folder")
	if err != nil {
		return err
	}
	c, err := decodeContext(body)
	if err != nil {
		return err
	}
	_, err = f.change(r.Context(), b, func(list []schemas.CodeContext) (_ []schemas.CodeContext, err error) {
		list, c, err = newContext(list, c)
		return list, err
	})
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, shown(c))
	return nil
}

// stopKernel kills the kernel of the context that a path names, if it runs.
func (f *codeInterpreter) stopKernel(r *http.Request, b *box) (c schemas.CodeContext, err error) {
	id := r.PathValue("context")
	i := findContext(b.session.Lease.Contexts, id)
	if i < 0 || id == "" {
		return c, noContext(id)
	}
	c = b.session.Lease.Contexts[i]
	call, err := f.Calls.Find(r.Context(), b.account, kernelCall(b.id, c))
	over := errors.Is(err, schemas.ErrNotFound) // it has not begun
	if err == nil {
		over, err = f.over(r.Context(), call)
	}
	if over {
		return c, nil
	}
	if err == nil {
		_, err = f.atWork(r.Context(), b, schemas.JobCommand{
			Account: b.account, Job: call.Job, Action: schemas.JobActionSignal, Signal: "KILL",
		})
	}
	if errors.Is(err, schemas.ErrConflict) || errors.Is(err, schemas.ErrNotFound) { // it has just ended
		err = nil
	}
	return c, err
}

// removeContext kills the kernel of a context and removes the context.
func (f *codeInterpreter) removeContext(w http.ResponseWriter, r *http.Request, b *box) error {
	c, err := f.stopKernel(r, b)
	if err != nil {
		return err
	}
	_, err = f.change(r.Context(), b, func(list []schemas.CodeContext) ([]schemas.CodeContext, error) {
		return slices.DeleteFunc(list, func(other schemas.CodeContext) bool { return other.ID == c.ID }), nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// restartContext kills the kernel of a context. The next code runs in a new one.
func (f *codeInterpreter) restartContext(w http.ResponseWriter, r *http.Request, b *box) error {
	c, err := f.stopKernel(r, b)
	if err == nil {
		_, err = f.nextKernel(r.Context(), b, c)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
