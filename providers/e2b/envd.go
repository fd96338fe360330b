package e2b

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// daemonPort is envd's.
const daemonPort = "49983"

// longestInput is how much of standard input one message has.
const longestInput = 512 << 10

// The users of a sandbox.
const (
	userPlain = "user"
	userRoot  = "root"
)

// daemon gives access to envd in a sandbox.
type daemon struct {
	client *cloud.Client
}

// daemonOf returns the daemon of a sandbox.
func (p *api) daemonOf(s sandbox) daemon {
	return daemon{&cloud.Client{
		Base: p.hostOf(s.ID, s.Domain), Auth: http.Header{"X-Access-Token": {s.Token}},
		Header: http.Header{"E2b-Sandbox-Id": {s.ID}, "E2b-Sandbox-Port": {daemonPort}, "User-Agent": {"sandjet"}},
		HTTP:   p.opt.HTTP, Log: p.log, Timeout: endTimeout,
	}}
}

// processEvent is a message of a process's stream.
type processEvent struct {
	Event struct {
		Start *struct {
			Pid int `json:"pid"`
		} `json:"start"`
		Data *struct {
			Stdout []byte `json:"stdout"`
			Stderr []byte `json:"stderr"`
		} `json:"data"`
		End *struct {
			ExitCode int    `json:"exitCode"`
			Exited   bool   `json:"exited"`
			Status   string `json:"status"`
		} `json:"end"`
	} `json:"event"`
}

// process is a process in a sandbox, with its standard input and outputs. It implements boxrun.Stream.
type process struct {
	daemon daemon
	frames *cloud.Frames
	pid    int
	ctx    context.Context //nolint:containedctx // its input's life is its own
	cancel context.CancelFunc
	once   sync.Once

	over   atomic.Bool // its end was received
	code   int         // of its end, as what follows
	exited bool
}

// start starts a process and returns when it runs. The daemon kills it after limit. Ctx bounds only the start, which is never retried:
// after an error that is no refusal it is unknown whether the process runs.
func (d daemon) start(ctx context.Context, user string, limit time.Duration, stdin bool, args ...string) (*process, error) {
	p := &process{daemon: d}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, p.cancel)
	defer stop()
	body := map[string]any{"process": map[string]any{"cmd": args[0], "args": args[1:]}, "stdin": stdin}
	header := http.Header{"Keepalive-Ping-Interval": {strconv.Itoa(seconds(pingEvery))}, "Connect-Protocol-Version": {"1"}}
	if limit > 0 {
		header.Set("Connect-Timeout-Ms", strconv.FormatInt(limit.Milliseconds(), 10))
	}
	header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	var err error
	p.frames, err = d.client.Stream(p.ctx, cloud.Call{Method: http.MethodPost, Path: "/process.Process/Start", Header: header, Body: body},
		silence)
	if err != nil {
		p.cancel()
		return nil, cmp.Or(ctx.Err(), err)
	}
	var first processEvent
	if err := p.frames.Next(&first); err != nil || first.Event.Start == nil {
		_ = p.frames.Close()
		p.cancel()
		return nil, cmp.Or(ctx.Err(), err, errors.New("the process did not say that it started"))
	}
	p.pid = first.Event.Start.Pid
	return p, nil
}

// send sends a request about the process.
func (p *process) send(ctx context.Context, method string, body map[string]any) error {
	body["process"] = map[string]int{"pid": p.pid}
	_, err := p.daemon.client.Do(ctx, cloud.Call{
		Method: http.MethodPost, Path: "/process.Process/" + method, Body: body, Header: http.Header{"Connect-Protocol-Version": {"1"}},
	})
	return err
}

// Write writes to the standard input of the process. If that fails its outputs end too.
func (p *process) Write(b []byte) (int, error) {
	for sent := 0; ; {
		n := min(len(b)-sent, longestInput)
		if err := p.send(p.ctx, "SendInput", map[string]any{"input": map[string][]byte{"stdin": b[sent : sent+n]}}); err != nil {
			p.cancel() // it is unknown what has arrived: readers need not wait
			return sent, err
		}
		if sent += n; sent == len(b) {
			return sent, nil
		}
	}
}

// Copy copies the outputs of the process until it has ended. If the stream does not report the end it returns an error.
func (p *process) Copy(stdout, stderr io.Writer) error {
	for {
		var e processEvent
		if err := p.frames.Next(&e); err != nil {
			return err
		}
		switch {
		case e.Event.Data != nil:
			_, err := stdout.Write(e.Event.Data.Stdout)
			_, err2 := stderr.Write(e.Event.Data.Stderr)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
		case e.Event.End != nil:
			p.code, p.exited = e.Event.End.ExitCode, e.Event.End.Exited
			p.over.Store(true)
			return nil
		}
	}
}

// Close ends Copy and Write, and the process's standard input, upon which the boxrun program ends its command.
func (p *process) Close() error {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), endTimeout)
		defer cancel()
		if !p.over.Load() {
			_ = p.send(ctx, "CloseStdin", map[string]any{}) // it may have ended
		}
		p.cancel()
		_ = p.frames.Close()
	})
	return nil
}

// run runs a short program as that user and waits for its end. The error of a failed program contains its output.
func (d daemon) run(ctx context.Context, user string, args ...string) error {
	_, err := d.output(ctx, user, args...)
	return err
}

// output is run, and returns the beginning of the program's output.
func (d daemon) output(ctx context.Context, user string, args ...string) (string, error) {
	code, said, err := d.execute(ctx, user, args...)
	if err == nil && code != 0 {
		return "", schemas.OpErrorf(schemas.Unavailable, "run", "a program in the sandbox failed with %d: %s", code, said)
	}
	return said, err
}

// execute runs a short program, waits for its end, and returns its exit code (-1 if it was killed) and the beginning of its output.
func (d daemon) execute(ctx context.Context, user string, args ...string) (code int, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	p, err := d.start(ctx, user, endTimeout, false, args...)
	if err != nil {
		return 0, "", err
	}
	defer p.cancel()
	defer p.frames.Close() //nolint:errcheck // it was only read
	stop := context.AfterFunc(ctx, p.cancel)
	defer stop()
	var out limited
	if err := p.Copy(&out, &out); err != nil {
		return 0, "", cmp.Or(ctx.Err(), err)
	}
	if !p.exited {
		return -1, string(out.text), nil
	}
	return p.code, string(out.text), nil
}

// limited stores the beginning of what is written.
type limited struct{ text []byte }

func (l *limited) Write(p []byte) (int, error) {
	const most = 4 << 10
	l.text = append(l.text, p[:min(len(p), most-len(l.text))]...)
	return len(p), nil
}
