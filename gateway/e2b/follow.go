package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// stream is a streaming response.
type stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	kind  string // its media type
	stall time.Duration
	ping  time.Duration // the longest silence
	begun bool
}

func (f *base) newStream(w http.ResponseWriter, r *http.Request, kind string) *stream {
	return &stream{w: w, rc: http.NewResponseController(w), kind: kind, stall: f.Stall, ping: pingOf(r.Header)}
}

// viewer receives the output and the end of a process.
type viewer interface {
	print(stderr bool, b []byte) error
	// end is called once, last, with how the process ended.
	end(e endEvent) error
	// alive is called when there was no output for a while.
	alive() error
}

const (
	defaultPing = 50 * time.Second
	maxPing     = 90 * time.Second
)

// pingOf returns the keep-alive interval that a client asks for, or the default.
func pingOf(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval"))
	if err != nil || n < 1 {
		return defaultPing
	}
	return min(time.Duration(min(n, int(maxPing/time.Second)))*time.Second, maxPing)
}

func (s *stream) push(b []byte) error {
	if !s.begun {
		s.begun = true
		h := s.w.Header()
		h.Set("Content-Type", s.kind)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // nginx would hold the bytes back
	}
	return web.Push(s.w, s.rc, b, s.stall)
}

// event is one event of a process; exactly one member is set.
type event struct {
	Start     *startEvent `json:"start,omitempty"`
	Data      *dataEvent  `json:"data,omitempty"`
	End       *endEvent   `json:"end,omitempty"`
	KeepAlive *struct{}   `json:"keepalive,omitempty"`
}

type startEvent struct {
	PID uint32 `json:"pid"`
}

type dataEvent struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
}

type endEvent struct {
	ExitCode int    `json:"exitCode,omitzero"`
	Exited   bool   `json:"exited,omitzero"`
	Status   string `json:"status"`
	Error    string `json:"error,omitzero"`
}

func (s *stream) event(e event) error {
	return s.push(frame(0, struct {
		Event event `json:"event"`
	}{e}))
}

func (s *stream) alive() error { return s.event(event{KeepAlive: &struct{}{}}) }

func (s *stream) end(e endEvent) error {
	if err := s.event(event{End: &e}); err != nil {
		return err
	}
	return s.push(lastFrame(nil))
}

// maxData is the most bytes of one event.
const maxData = 64 << 10

func (s *stream) print(stderr bool, b []byte) error {
	for len(b) > 0 {
		n := min(len(b), maxData)
		d := &dataEvent{Stdout: b[:n]}
		if stderr {
			d = &dataEvent{Stderr: b[:n]}
		}
		if err := s.event(event{Data: d}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// outputs records how much of a call's output was sent to its reader.
type outputs struct {
	attempt int
	raw     [2]int64 // bytes that were printed, of stdout and stderr
	text    [2]int   // bytes that were sent for them
	hole    bool     // something in the middle is missing: nothing more is sent
}

// take returns the part of a piece of output that the reader does not have yet. If pieces are missing before it, hole is set, and nothing
// more is returned.
func (o *outputs) take(d schemas.OutputData) (text string, stderr bool) {
	i := 0
	if d.Stream == "stderr" {
		i = 1
	}
	if o.attempt == 0 {
		o.attempt = d.Attempt
	}
	if o.hole || d.Capped || d.Attempt != o.attempt || d.Offset != o.raw[i] {
		o.hole = o.hole || d.Capped || d.Attempt != o.attempt || d.Offset > o.raw[i]
		return "", false
	}
	o.raw[i] += int64(d.Bytes)
	o.text[i] += len(d.Text)
	return d.Text, i == 1
}

// rest returns the output in a result that the reader does not have yet. Code exhausted: a part of it was not kept.
func (o *outputs) rest(r schemas.Output) (stdout, stderr string, err error) {
	switch {
	case o.raw[0]+o.raw[1] == r.TotalBytes && r.TotalBytes > 0:
		return "", "", nil
	case r.Truncated, r.InvalidBytes > 0 && o.text != [2]int{}, o.text[0] > len(r.Stdout), o.text[1] > len(r.Stderr):
		return "", "", schemas.Errorf(schemas.Exhausted,
			"the command has ended with exit code %d, but of the %d bytes that it printed not all are kept: have it write into a file and read that",
			r.ExitCode, r.TotalBytes)
	}
	return r.Stdout[o.text[0]:], r.Stderr[o.text[1]:], nil
}

// killed returns the end event of a killed process.
func killed() endEvent {
	return endEvent{ExitCode: -1, Status: "signal: killed", Error: "signal: killed"}
}

// endOf returns the end event of a call's process, or the error if it was not run or timed out.
func endOf(r schemas.Result) (endEvent, error) {
	message := r.Text
	if r.Error != nil {
		message = r.Error.Message
	}
	switch {
	case r.Status == schemas.StatusCancelled:
		return killed(), nil
	case r.Status == schemas.StatusInterrupted:
		return endEvent{ExitCode: -1, Status: "interrupted", Error: "interrupted: its worker died while it ran, and it is not run again"}, nil
	case r.Status == schemas.StatusExpired:
		return endEvent{}, schemas.Errorf(schemas.Timeout, "no worker had a place for the command in time")
	case r.Output == nil && r.Error != nil:
		return endEvent{}, r.Error
	case r.Output == nil:
		return endEvent{}, schemas.Errorf(schemas.Unavailable, "the command was not run: %s", schemas.Quotable(message))
	case r.Output.TimedOut:
		return endEvent{}, schemas.Errorf(schemas.Timeout, "the command was killed: its time was over")
	}
	return exitOf(r.Output.ExitCode), nil
}

func exitOf(code int) endEvent {
	e := endEvent{ExitCode: code, Exited: true, Status: "exit status " + strconv.Itoa(code)}
	if code != 0 {
		e.Error = e.Status
	}
	return e
}

// follow streams a process from its start to its end.
func (f *processes) follow(ctx context.Context, s *stream, b *box, call schemas.Call, pid uint32) error {
	if err := s.event(event{Start: &startEvent{pid}}); err != nil {
		return err
	}
	if call.Job != "" {
		return f.followJob(ctx, s, b, call)
	}
	return f.followCall(ctx, s, s.ping, b, call)
}

var errEnded = errors.New("ended")

// followCall sends the output of a call to v as it is printed, then what its result has in addition, and its end. It returns after the
// end.
func (f *base) followCall(ctx context.Context, v viewer, ping time.Duration, b *box, call schemas.Call) error {
	ctx, cancel := context.WithCancel(ctx)
	type step struct {
		event schemas.Event
		gap   bool // some before it are missing
	}
	steps, failed := make(chan step), make(chan error, 1)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	reading.Go(func() {
		failed <- f.Calls.Follow(ctx, call, func(e schemas.Event, gap bool) error {
			select {
			case steps <- step{e, gap}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	silence := time.NewTicker(ping)
	defer silence.Stop()
	var shown outputs
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			if err == nil {
				err = schemas.Errorf(schemas.Unavailable, "the log cannot be reached: connect to the process again")
			}
			return err
		case <-silence.C:
			f.Sessions.Touch(ctx, b.account, b.id)
			if err := v.alive(); err != nil {
				return err
			}
		case got := <-steps:
			shown.hole = shown.hole || got.gap
			err := shown.event(v, call.ID, got.event)
			if errors.Is(err, errEnded) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}

// event handles one event of a call. It returns errEnded after the last.
func (o *outputs) event(v viewer, call schemas.CallID, e schemas.Event) error {
	if e.Subject != string(call) {
		return nil
	}
	if e.Type == schemas.CallOutput {
		var d schemas.OutputData
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return schemas.Wrap(schemas.Internal, "follow", "the output is of another form", err)
		}
		text, stderr := o.take(d)
		return v.print(stderr, []byte(text))
	}
	if e.Type != schemas.CallFinished {
		return nil
	}
	var r schemas.Result
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return schemas.Wrap(schemas.Internal, "follow", "the result is of another form", err)
	}
	end, err := endOf(r)
	if err != nil {
		return err
	}
	if r.Output != nil {
		stdout, stderr, err := o.rest(*r.Output)
		if err != nil {
			return err
		}
		if err := errors.Join(v.print(false, []byte(stdout)), v.print(true, []byte(stderr))); err != nil {
			return err
		}
	}
	if err := v.end(end); err != nil {
		return err
	}
	return errEnded
}

// betweenLooks is the pause between two reads of a job without new output.
var betweenLooks = wait.Backoff{First: 50 * time.Millisecond, Most: time.Second} //nolint:gochecknoglobals // settings, never changed

// followJob streams the output of a job, all of it as standard output, until the job ends.
func (f *processes) followJob(ctx context.Context, s *stream, b *box, call schemas.Call) error {
	at, spoken := int64(0), time.Now()
	cmd := schemas.JobCommand{Account: b.account, Job: call.Job, Action: schemas.JobActionLogs, Limit: schemas.MaxJobLogPage}
	for idle := 1; ; idle++ {
		job, err := f.Calls.Job(ctx, b.account, call.Job)
		if err != nil && !errors.Is(err, schemas.ErrNotFound) && !errors.Is(err, schemas.ErrUnavailable) {
			return err
		}
		over := err == nil && job.State.Final() // read before the log, so that this has all of it then
		if errors.Is(err, schemas.ErrNotFound) {
			if ended, err := f.Calls.Ended(ctx, call); err != nil || ended {
				return f.followCall(ctx, s, s.ping, b, call) // it ended before its job was there
			}
		}
		cmd.Offset = at
		reply, err := f.Calls.Control(ctx, cmd)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			if reply.Offset != at && len(reply.Data) > 0 {
				return schemas.Errorf(schemas.Exhausted,
					"of what the command printed the beginning is not kept: have it write into a file and read that")
			}
			if err := s.print(false, reply.Data); err != nil {
				return err
			}
			if len(reply.Data) > 0 {
				at, idle, spoken = at+int64(len(reply.Data)), 0, time.Now()
			}
			if at < reply.Size && len(reply.Data) > 0 {
				continue
			}
		}
		if over {
			return s.settled(job, at)
		}
		if time.Since(spoken) >= s.ping {
			f.Sessions.Touch(ctx, b.account, b.id)
			if err := s.alive(); err != nil {
				return err
			}
			spoken = time.Now()
		}
		betweenLooks.Sleep(ctx, max(idle, 1)) // the end of ctx is seen above
	}
}

// settled sends the rest of a finished job's log, from the byte at on, and how the job ended. Code exhausted: a part of the log was not
// kept.
func (s *stream) settled(job schemas.Job, at int64) error {
	c := job.Completion
	if c == nil {
		return schemas.Errorf(schemas.Internal, "the job has ended without a record of it")
	}
	if at < c.LogBytes {
		if c.LogTruncated || c.LogInvalidBytes > 0 || int64(len(c.Logs)) != c.LogBytes {
			return schemas.Errorf(schemas.Exhausted,
				"the command has ended, but of the %d bytes that it printed not all are kept: have it write into a file and read that", c.LogBytes)
		}
		if err := s.print(false, []byte(c.Logs[at:])); err != nil {
			return err
		}
	}
	return s.end(endOfJob(*c))
}

// endOfJob returns the end event of a job's process.
func endOfJob(c schemas.Completion) endEvent {
	const kill = 128 + 9
	switch {
	case c.State == schemas.JobStopped, c.ExitCode != nil && *c.ExitCode == kill:
		return killed()
	case c.ExitCode != nil:
		return exitOf(*c.ExitCode)
	}
	return endEvent{ExitCode: -1, Status: string(c.State), Error: string(c.State) + ": " + c.Reason}
}
