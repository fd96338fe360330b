package vercel

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

const wayThere = 10 * time.Second // that a command's answer may take beside the command

// command is a command as the service describes it.
type command struct {
	ID   string `json:"id"`
	Exit *int   `json:"exitCode"` // nil: it runs
}

// line is a line of a log: a piece of an output, an error of the service, or the state of the command.
type line struct {
	Stream  string          `json:"stream"`
	Data    json.RawMessage `json:"data"`
	Command *command        `json:"command"`
}

// text returns the piece of output in a line. If the line is an error of the service, because the session has ended, it returns that
// error. Clean removes secrets from the service's message.
func (l line) text(route string, clean func(string) string) (text string, err error) {
	if l.Stream != "error" {
		if err := json.Unmarshal(l.Data, &text); err != nil {
			return "", errors.New("a line of a log has no text")
		}
		return text, nil
	}
	var said struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(l.Data, &said) // whatever it says: it is over
	return "", &cloud.Error{Route: route, Status: http.StatusGone, Kind: clean(said.Code), Message: clean(said.Message), Sent: true}
}

// newCommand is the body of a request to start a command. The service kills it after Timeout milliseconds.
type newCommand struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Dir     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Wait    bool              `json:"wait,omitempty"`
	Logs    bool              `json:"logs,omitempty"`
	Timeout int64             `json:"timeout"`
}

func bash(limit time.Duration, script string, args ...string) newCommand {
	return newCommand{
		Command: "bash", Args: append([]string{"-c", script, "sandjet"}, args...), Dir: "/", Env: map[string]string{},
		Timeout: limit.Milliseconds(),
	}
}

// executed is the result of a short command.
type executed struct {
	Exit   int
	Output string // both of its outputs
}

// execute runs a bash script with arguments and waits for its end. What selects its row in the table of retries.
func (s session) execute(ctx context.Context, what string, limit time.Duration, script string, args ...string) (e executed, err error) {
	return s.executeAs(ctx, false, what, limit, script, args...)
}

// executeAs is execute, optionally as root.
func (s session) executeAs(ctx context.Context, root bool, what string, limit time.Duration, script string, args ...string) (
	e executed, err error,
) {
	c := s.call(http.MethodPost, "/cmd")
	c.Route += " " + what
	n := bash(limit, script, args...)
	n.Wait, n.Logs, n.Sudo = true, true, root
	c.Body, c.Each, c.Wait = n, limit+wayThere, 4*(limit+wayThere)
	c.Read = func(answer []byte) (err error) {
		e, err = readExecuted(c.Route, s.p.client.Clean, answer)
		return err
	}
	_, err = s.p.client.Do(ctx, c)
	return e, err
}

// readExecuted parses the response to a command that was waited for: lines, of which the last says how it ended.
func readExecuted(route string, clean func(string) string, answer []byte) (e executed, err error) {
	lines := bufio.NewScanner(bytes.NewReader(answer))
	lines.Buffer(nil, len(answer)+1)
	var out strings.Builder
	for {
		var l line
		err := cloud.NextLine(lines, &l)
		switch {
		case errors.Is(err, io.EOF):
			return e, errors.New("the answer ended before the command")
		case err != nil:
			return e, err
		case l.Command == nil:
			text, err := l.text(route, clean)
			if err != nil {
				return e, err
			}
			out.WriteString(text)
		case l.Command.Exit != nil:
			return executed{*l.Command.Exit, out.String()}, nil
		}
	}
}

// run runs a script; a nonzero exit code is an error.
func (s session) run(ctx context.Context, what, script string, args ...string) error {
	e, err := s.execute(ctx, what, endTimeout, script, args...)
	if err == nil && e.Exit != 0 {
		err = schemas.OpErrorf(schemas.Unavailable, "run", "a program in the sandbox failed with %d: %s", e.Exit, excerpt(e.Output))
	}
	return err
}

// start starts a script without waiting for it, and returns the command's id. It is never retried.
func (s session) start(ctx context.Context, limit time.Duration, script string, args ...string) (id string, err error) {
	var said struct {
		Command command `json:"command"`
	}
	c := s.call(http.MethodPost, "/cmd")
	c.Route += " start"
	c.Body, c.Into, c.Wait = bash(limit, script, args...), &said, endTimeout
	_, err = s.p.client.Do(ctx, c)
	if err == nil && said.Command.ID == "" {
		err = schemas.OpErrorf(schemas.Unavailable, "run", "Vercel does not say which command it has started")
	}
	return said.Command.ID, err
}

// write writes a file that only the sandbox's user reads, below the root: its folder is there.
func (s session) write(ctx context.Context, path string, content []byte) error {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	t := tar.NewWriter(z)
	err := t.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o600, Size: int64(len(content))})
	if err == nil {
		_, err = t.Write(content)
	}
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return err
	}
	c := s.call(http.MethodPost, "/fs/write")
	c.Header = http.Header{"Content-Type": {"application/gzip"}, "X-Cwd": {"/"}}
	c.Raw, c.Wait = packed.Bytes(), endTimeout
	_, err = s.p.client.Do(ctx, c)
	return err
}
