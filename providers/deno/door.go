package deno

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

const (
	wayBack   = 5 * time.Second // that the way to the sandbox and back may take, beside the time of a command
	mostTries = 6
	mostPart  = 512 << 10 // bytes of a file in one message
)

// door is a connection to a sandbox that is renewed when it has broken. It implements spool.Box.
type door struct {
	p    *api
	id   string
	turn chan struct{} // has one: its holder may read cur and change it
	cur  *link         // nil: there is none
}

// doorOf returns a door to a sandbox, with an open connection if first is not nil. The caller closes it.
func (p *sandboxes) doorOf(id string, first *link) *door {
	d := &door{p: p.api, id: id, turn: make(chan struct{}, 1), cur: first}
	d.turn <- struct{}{}
	return d
}

// Close closes the door's connection. The door must not be used afterwards.
func (d *door) Close() {
	<-d.turn
	if d.cur != nil {
		d.cur.Close()
	}
}

// open returns the door's connection, making a new one if there is none or it has broken.
func (d *door) open(ctx context.Context) (*link, error) {
	select {
	case <-d.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { d.turn <- struct{}{} }()
	if d.cur != nil {
		select {
		case <-d.cur.over:
			d.cur.Close()
			d.cur = nil
		default:
			return d.cur, nil
		}
	}
	conn, err := d.p.dial(ctx, d.id)
	if err != nil {
		return nil, err
	}
	d.cur = newLink(conn)
	return d.cur, nil
}

// again reports whether an idempotent request that failed with err may be retried.
func again(err error) bool {
	var broken *brokenError
	var refused *rpcError
	var failed *cloud.Error
	switch {
	case errors.As(err, &broken):
		return true
	case errors.As(err, &refused):
		return refused.Name == "" // the protocol's, and not the sandbox's
	case errors.As(err, &failed):
		return failed.Status == 0 || slices.Contains(busy(), failed.Status)
	}
	return errors.Is(err, errNoRPC)
}

// repeat calls do, and again after errors for which a retry is allowed and may help.
func (d *door) repeat(ctx context.Context, allowed bool, do func() error) error {
	pause := wait.Backoff{First: 100 * time.Millisecond, Most: 3 * time.Second}
	for n := 1; ; n++ {
		err := do()
		if err == nil || !allowed || n == mostTries || !again(err) {
			return d.clean(err)
		}
		d.p.log.Debug("request to a sandbox failed, retrying", "sandbox", d.id, "attempt", n, "error", err)
		if !pause.Sleep(ctx, n) {
			return d.clean(err)
		}
	}
}

// clean removes secrets from a sandbox's error message.
func (d *door) clean(err error) error {
	if said, ok := errors.AsType[*rpcError](err); ok {
		return &rpcError{Code: said.Code, Message: d.p.console.Clean(said.Message), Name: d.p.console.Clean(said.Name)}
	}
	return err
}

// Execute runs a bash script in the sandbox. Idempotent uses are retried over a new connection.
func (d *door) Execute(
	ctx context.Context, what string, limit time.Duration, script string, args ...string,
) (said spool.Executed, err error) {
	err = d.repeat(ctx, slices.Contains(spool.Repeatable(), what), func() error {
		said, err = d.once(ctx, limit, script, args)
		return err
	})
	return said, err
}

// spawned is the answer to a spawn request.
type spawned struct {
	Pid    int64  `json:"pid"`
	Stdout *int64 `json:"stdoutStreamId"`
	Stderr *int64 `json:"stderrStreamId"`
}

// ended is how a process ended.
type ended struct {
	Code   *int   `json:"code"`
	Signal string `json:"signal"`
}

// once runs a script once.
func (d *door) once(ctx context.Context, limit time.Duration, script string, args []string) (spool.Executed, error) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, limit+wayBack)
	defer cancel()
	l, err := d.open(ctx)
	if err != nil {
		return spool.Executed{}, late(outer, err)
	}
	var p spawned
	err = l.call(ctx, "spawn", map[string]any{
		"command": "bash", "args": append([]string{"-c", script, "sandjet"}, args...), "cwd": "/", "stdout": "piped", "stderr": "piped",
	}, &p)
	switch {
	case err != nil:
		return spool.Executed{}, late(outer, err)
	case p.Stdout == nil || p.Stderr == nil:
		return spool.Executed{}, errNoRPC
	}
	defer l.drop(*p.Stdout)
	defer l.drop(*p.Stderr)
	stdout, stderr := l.claim(*p.Stdout), l.claim(*p.Stderr)
	var e ended
	if err = l.call(ctx, "processWait", map[string]any{"pid": p.Pid}, &e); err == nil && e.Code == nil {
		err = errNoRPC
	}
	for _, s := range []*stream{stdout, stderr} {
		if err != nil {
			break
		}
		select {
		case <-s.done:
			err = s.err
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		d.abandon(l, p.Pid, err)
		return spool.Executed{}, late(outer, err)
	}
	said := spool.Executed{Exit: *e.Code, Result: string(stdout.data)}
	if said.Exit != 0 {
		said.Result += string(stderr.data)
	}
	return said, nil
}

// late returns err or, if only this try's time has ended and not the caller's context, a brokenError.
func late(outer context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && outer.Err() == nil {
		return &brokenError{errors.New("no answer came in time")}
	}
	return err
}

// abandon kills a process after a timeout or cancellation, if the sandbox can be reached.
func (d *door) abandon(l *link, pid int64, err error) {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wayBack)
	defer cancel()
	_ = l.call(ctx, "processKill", map[string]any{"pid": pid, "signal": "SIGKILL"}, nil) // it may have ended
}

// Upload writes a file. After a broken connection it starts over. It never leaves a partial file.
func (d *door) Upload(ctx context.Context, path string, content []byte) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	return d.repeat(ctx, true, func() error {
		l, err := d.open(ctx)
		if err != nil {
			return err
		}
		for at := 0; at == 0 || at < len(content); at += mostPart {
			part := content[at:min(at+mostPart, len(content))]
			err := l.call(ctx, "writeFile", map[string]any{
				"path": path, "content": base64.StdEncoding.EncodeToString(part), "options": map[string]any{"append": at > 0},
			}, nil)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// explain maps an error to one with a code, for an operation that has not begun.
func explain(op string, err error) error {
	var failed *cloud.Error
	var refused *rpcError
	var broken *brokenError
	said := strings.ToLower(cloud.KindOf(err))
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return schemas.Wrap(schemas.Unavailable, op, "the sandbox does not do it: "+refused.Error(), err)
	case errors.As(err, &broken) || errors.Is(err, errNoRPC):
		return schemas.Wrap(schemas.Unavailable, op, "the connection to the sandbox broke", err)
	case errors.As(err, &failed) && failed.Status == http.StatusForbidden &&
		(strings.Contains(said, "limit") || strings.Contains(said, "quota")):
		return schemas.Wrap(schemas.Exhausted, op, "the organization's share of Deno is used up: "+failed.Message, err)
	case op == opCreate && cloud.StatusOf(err) == http.StatusNotFound:
		return schemas.Wrap(schemas.Unsupported, op, "Deno has not what sandboxes are made of: \"sandjet doctor\" explains", err)
	}
	return cloud.Explain(op, service, err)
}
