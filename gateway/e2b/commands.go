package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// queueing is how long a command may wait until it runs.
	queueing  = time.Minute
	callBegin = "e2b_"
	minPID    = 1000
)

// callOf returns the id of the call that runs a process. The number of a process is random, so that gateways need no record of the numbers
// in use.
func callOf(sandbox string, pid uint32) schemas.CallID {
	return schemas.CallID(callBegin + sandbox + "_" + strconv.FormatUint(uint64(pid), 10))
}

// pidOf returns the number of the process that a call runs; 0 if the call runs none.
func pidOf(sandbox string, id schemas.CallID) uint32 {
	text, ok := strings.CutPrefix(string(id), callBegin+sandbox+"_")
	n, err := strconv.ParseUint(text, 10, 31)
	if !ok || err != nil || callOf(sandbox, uint32(n)) != id {
		return 0
	}
	return uint32(n)
}

// starting is a parsed request for a new process.
type starting struct {
	Process process         `json:"process"`
	Stdin   *bool           `json:"stdin"`
	Tag     string          `json:"tag"`
	PTY     json.RawMessage `json:"pty"`
}

// decodeStart decodes a request for a new process. Codes: invalid, unsupported.
func decodeStart(body []byte) (in starting, err error) {
	message, err := readFrame(body)
	if err == nil {
		err = decode(message, &in)
	}
	switch {
	case err != nil:
		return in, err
	case len(in.PTY) > 0 && string(in.PTY) != "null":
		return in, unsupported("pty: a terminal is not served")
	case in.Tag != "":
		return in, unsupported("tag: processes with names of the client's are not served")
	case in.Process.Cmd == "":
		return in, schemas.Invalidf("process.cmd", "must not be empty")
	}
	return in, nil
}

// call returns the input and the timeout of the call that runs the process, with the sandbox's variables env. A within of 0 means no time
// limit.
//
// A call in the foreground has no standard input and has a time limit; a process that needs a standard input or no limit is a background
// job.
func (in starting) call(env map[string]string, within time.Duration) (input schemas.BashInput, timeout time.Duration, err error) {
	p := in.Process
	p.Dir = dirOf(p.Dir)
	if len(env) > 0 {
		p.Envs = maps.Clone(env)
		maps.Copy(p.Envs, in.Process.Envs)
	}
	if input.Command, err = p.script(); err != nil {
		return input, 0, err
	}
	input.Background = in.Stdin != nil && *in.Stdin || within == 0 || within > schemas.MaxTimeout
	if !input.Background {
		timeout = within
	}
	return input, timeout, nil
}

// withinOf returns the time limit that a client sets for a stream; 0 if there is none. Code: invalid.
func withinOf(h http.Header) (time.Duration, error) {
	v := h.Get("Connect-Timeout-Ms")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || len(v) > 10 {
		return 0, schemas.Invalidf("Connect-Timeout-Ms", "is not a number of milliseconds of at most ten digits")
	}
	return time.Duration(n) * time.Millisecond, nil
}

// checkUser rejects a user other than the one that commands run as. Code: unsupported.
func checkUser(r *http.Request) error {
	if user, _, ok := r.BasicAuth(); ok && user != "user" {
		return unsupported("running as the user " + schemas.Quotable(user) + " is not served, leave the user out")
	}
	if user := r.URL.Query().Get("username"); user != "" && user != "user" {
		return unsupported("files as the user " + schemas.Quotable(user) + " are not served")
	}
	return nil
}

// processes serves the commands of a sandbox: envd's process service.
type processes struct{ *base }

// start runs a process and streams its output until it ends. If the client disconnects, the process continues.
func (f *processes) start(w http.ResponseWriter, r *http.Request, b *box) error {
	if err := checkStream(r); err != nil {
		return err
	}
	body, err := web.ReadBody(w, r, schemas.MaxRequest, "write the command into a file and run that")
	if err != nil {
		return err
	}
	in, err := decodeStart(body)
	if err == nil {
		err = checkUser(r)
	}
	if err != nil {
		return err
	}
	within, err := withinOf(r.Header)
	if err != nil {
		return err
	}
	input, timeout, err := in.call(b.session.Lease.Env, within)
	if err != nil {
		return err
	}
	return f.streaming(w, r, b, func(ctx context.Context, s *stream) error {
		session, err := f.Sessions.Enter(ctx, b.account, b.id)
		if err != nil {
			return gone(err)
		}
		pid := newPID()
		call, err := f.submit(ctx, b, session, schemas.Request{
			ID: callOf(b.id, pid), Conversation: conversationOf(b.id, pid), Timeout: schemas.Duration(timeout),
		}, input)
		if err != nil {
			return err
		}
		return f.follow(ctx, s, b, call, pid)
	})
}

// conversationOf returns the conversation with the events of a process. Each process has its own, so that a client that connects to it
// reads only its events.
func conversationOf(sandbox string, pid uint32) schemas.ConversationID {
	return schemas.ConversationID("e2b:" + sandbox + ":" + strconv.FormatUint(uint64(pid), 10))
}

// attach streams the output of a process from its beginning until it ends.
func (f *processes) attach(w http.ResponseWriter, r *http.Request, b *box) error {
	if err := checkStream(r); err != nil {
		return err
	}
	body, err := web.ReadBody(w, r, schemas.MaxRequest, "name a process alone")
	if err != nil {
		return err
	}
	message, err := readFrame(body)
	if err != nil {
		return err
	}
	var in selector
	if err := in.decode(message); err != nil {
		return err
	}
	call, err := f.process(r.Context(), b, in.pid())
	if err != nil {
		return err
	}
	return f.streaming(w, r, b, func(ctx context.Context, s *stream) error { return f.follow(ctx, s, b, call, in.pid()) })
}

// checkStream rejects media types of Connect that are not supported. Code: unsupported.
func checkStream(r *http.Request) error {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != streamType {
		return web.WithStatus(http.StatusUnsupportedMediaType,
			unsupported("the type "+schemas.Quotable(kind)+" is not served, use "+streamType))
	}
	return nil
}

// streaming serves the event stream of a process. After the stream has begun, an error is sent as its last frame.
func (f *base) streaming(w http.ResponseWriter, r *http.Request, b *box, serve func(ctx context.Context, s *stream) error) error {
	s := f.newStream(w, r, streamType)
	err := f.held(w, r, b, func(ctx context.Context) error { return serve(ctx, s) })
	if err == nil || !s.begun {
		return err
	}
	f.brokenOff(w, r, err)
	_ = s.push(lastFrame(&failure{rpcCode(err), sentence(w, err)})) // the client may have gone
	return nil
}

// brokenOff logs an internal error that ended a stream, since the client does not see it.
func (f *base) brokenOff(w http.ResponseWriter, r *http.Request, err error) {
	if schemas.CodeOf(err) == schemas.Internal && r.Context().Err() == nil {
		f.Log.Warn("stream broken off", "request", w.Header().Get(web.HeaderRequestID), "error", err)
	}
}

// held serves a long request: it takes a slot, and cancels the request's context when its API key is revoked or the gateway stops; the
// error is then the reason.
func (f *base) held(w http.ResponseWriter, r *http.Request, b *box, serve func(ctx context.Context) error) error {
	done, err := f.TakeWait(w, b.account)
	if err != nil {
		return err
	}
	defer done()
	web.HoldOf(r.Context()).Release()
	ctx, end := f.Credentials.WhileGood(r.Context(), credentials.Principal{Account: b.account, Key: b.key})
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.Draining, func() {
		cancel(schemas.Errorf(schemas.Unavailable, "this gateway is stopping, what was begun runs on: connect to the sandbox again"))
	})()
	err = serve(ctx)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		err = context.Cause(ctx)
	}
	return err
}

// selector names a process by its number.
type selector struct {
	Process struct {
		PID *uint32 `json:"pid"`
		Tag string  `json:"tag"`
	} `json:"process"`
}

// decode decodes a selector. Codes: invalid, unsupported.
func (s *selector) decode(body []byte) error {
	if err := decode(body, s); err != nil {
		return err
	}
	return s.check()
}

func (s *selector) check() error {
	switch {
	case s.Process.Tag != "":
		return unsupported("tag: processes with names of the client's are not served")
	case s.Process.PID == nil:
		return schemas.Invalidf("process.pid", "is missing")
	}
	return nil
}

func (s *selector) pid() uint32 { return *s.Process.PID }

// process returns the call of a process of the sandbox. Code: not_found.
func (f *processes) process(ctx context.Context, b *box, pid uint32) (schemas.Call, error) {
	call, err := f.Calls.Find(ctx, b.account, callOf(b.id, pid))
	if errors.Is(err, schemas.ErrNotFound) || err == nil && call.Workspace != b.session.Workspace {
		return call, noProcess(pid)
	}
	return call, err
}

func noProcess(pid uint32) error {
	return schemas.Errorf(schemas.NotFound, "process with pid %d not found", pid)
}

// running returns the call of a process that has not ended. Code: not_found.
func (f *processes) running(ctx context.Context, b *box, pid uint32) (schemas.Call, error) {
	call, err := f.process(ctx, b, pid)
	if err != nil {
		return call, err
	}
	ended, err := f.over(ctx, call)
	if err == nil && ended {
		err = noProcess(pid)
	}
	return call, err
}

// over reports whether the process of a call has ended.
func (f *base) over(ctx context.Context, call schemas.Call) (bool, error) {
	if call.Job == "" {
		return f.Calls.Ended(ctx, call)
	}
	job, err := f.Calls.Job(ctx, call.Account, call.Job)
	if errors.Is(err, schemas.ErrNotFound) { // its call has not begun, or has ended without it
		return f.Calls.Ended(ctx, call)
	}
	return err == nil && job.State.Final(), err
}

// shownProcess is a process in the list for clients.
type shownProcess struct {
	PID    uint32  `json:"pid"`
	Config process `json:"config"`
}

// list lists the running processes of a sandbox that were started by this API.
func (f *processes) list(w http.ResponseWriter, r *http.Request, b *box) error {
	calls, jobs, err := f.Calls.Inside(r.Context(), b.account, b.session)
	if err != nil {
		return err
	}
	for _, id := range jobs {
		job, err := f.Calls.Job(r.Context(), b.account, id)
		if err == nil && !job.State.Final() {
			calls = append(calls, job.Call)
		} else if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
	}
	out := []shownProcess{}
	seen := map[uint32]bool{0: true}
	for _, id := range calls {
		pid := pidOf(b.id, id)
		if seen[pid] {
			continue
		}
		seen[pid] = true
		call, err := f.Calls.Find(r.Context(), b.account, id)
		if errors.Is(err, schemas.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		var in schemas.BashInput
		p, ok := process{}, false
		if call.InputLeftOut() { // a command that is too large for a list
			p, ok = process{Args: []string{}}, call.Tool == schemas.ToolBash
		} else if json.Unmarshal(call.Input, &in) == nil {
			p, ok = processOf(in.Command)
		}
		if ok {
			out = append(out, shownProcess{pid, p})
		}
	}
	web.WriteJSON(w, http.StatusOK, map[string]any{"processes": out})
	return nil
}

// unary decodes the body of a Connect request that is not a stream.
func unary(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := web.ReadBody(w, r, maxUnary, "send it in pieces")
	if err != nil {
		return err
	}
	return decode(body, v)
}

// maxUnary holds the largest piece of a standard input, as base64.
const maxUnary = 2 * schemas.MaxJobStdin

// input writes to the standard input of a process.
func (f *processes) input(w http.ResponseWriter, r *http.Request, b *box) error {
	var in inputRequest
	if err := unary(w, r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	return f.onJob(w, r, b, in.selector, schemas.JobCommand{Action: schemas.JobActionStdin, Data: in.Input.Stdin})
}

// inputRequest is a parsed request to write to a process.
type inputRequest struct {
	selector

	Input struct {
		Stdin []byte          `json:"stdin"`
		PTY   json.RawMessage `json:"pty"`
	} `json:"input"`
}

func (in *inputRequest) check() error {
	switch {
	case len(in.Input.PTY) > 0:
		return unsupported("pty: a terminal is not served")
	case len(in.Input.Stdin) > schemas.MaxJobStdin:
		return schemas.Invalidf("input.stdin", "has more than %d bytes: write it in pieces", schemas.MaxJobStdin)
	}
	return in.selector.check()
}

// closeInput closes the standard input of a process.
func (f *processes) closeInput(w http.ResponseWriter, r *http.Request, b *box) error {
	var in selector
	if err := unary(w, r, &in); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	return f.onJob(w, r, b, in, schemas.JobCommand{Action: schemas.JobActionStdin, EOF: true})
}

// onJob executes a command on the job of a process, and waits for a job that is about to run.
func (f *processes) onJob(w http.ResponseWriter, r *http.Request, b *box, in selector, cmd schemas.JobCommand) error {
	call, err := f.running(r.Context(), b, in.pid())
	if err != nil {
		return err
	}
	if call.Job == "" {
		return schemas.Errorf(schemas.Conflict, "the process has no standard input: start it with stdin: true")
	}
	cmd.Account, cmd.Job = b.account, call.Job
	if _, err := f.atWork(r.Context(), b, cmd); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

// atWork executes a command on a job, once the job runs; it waits for that for up to queueing. Codes: conflict (the job does not run),
// unavailable.
func (f *base) atWork(ctx context.Context, b *box, cmd schemas.JobCommand) (schemas.JobReply, error) {
	until := time.Now().Add(queueing)
	for n := 1; ; n++ {
		reply, err := f.Calls.Control(ctx, cmd)
		if !errors.Is(err, schemas.ErrConflict) && !errors.Is(err, schemas.ErrNotFound) {
			return reply, err
		}
		job, jerr := f.Calls.Job(ctx, b.account, cmd.Job)
		begins := errors.Is(jerr, schemas.ErrNotFound) || job.State == schemas.JobWaiting || job.State == schemas.JobLaunching
		if !begins || time.Now().After(until) || !betweenLooks.Sleep(ctx, n) {
			return reply, err
		}
	}
}

// signal kills a process, or sends another signal to its job.
func (f *processes) signal(w http.ResponseWriter, r *http.Request, b *box) error {
	var in signalRequest
	if err := unary(w, r, &in); err != nil {
		return err
	}
	name, err := in.name()
	if err != nil {
		return err
	}
	call, err := f.running(r.Context(), b, in.pid())
	if err != nil {
		return err
	}
	switch {
	case call.Job != "":
		cmd := schemas.JobCommand{Account: b.account, Job: call.Job, Action: schemas.JobActionSignal, Signal: name}
		_, err = f.atWork(r.Context(), b, cmd)
	case name != "KILL":
		return unsupported("the signal " + name + " to a command without standard input is not served, use SIGKILL")
	default:
		err = f.Calls.Cancel(r.Context(), call, "killed by its client")
	}
	if errors.Is(err, schemas.ErrConflict) { // it has just ended
		err = noProcess(in.pid())
	}
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

// signalRequest is a parsed signal to a process.
type signalRequest struct {
	selector

	Signal any `json:"signal"` // its name or number
}

// name returns the name of the signal for a job. Codes: invalid, unsupported.
func (in *signalRequest) name() (string, error) {
	if err := in.check(); err != nil {
		return "", err
	}
	switch in.Signal {
	case "SIGNAL_SIGKILL", float64(9):
		return "KILL", nil
	case "SIGNAL_SIGTERM", float64(15):
		return "TERM", nil
	}
	return "", schemas.Invalidf("signal", "is not known: use SIGNAL_SIGKILL or SIGNAL_SIGTERM")
}
