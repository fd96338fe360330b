package denotest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// method carries out a request. It returns an error if the parameters are invalid.
type method func(c *socket, params json.RawMessage) (outcome, error)

// take is a method with parameters of a type.
func take[T any](do func(c *socket, in T) outcome) method {
	return func(c *socket, params json.RawMessage) (outcome, error) {
		var in T
		if err := json.Unmarshal(params, &in); err != nil {
			return outcome{}, err
		}
		return do(c, in), nil
	}
}

func methods() map[string]method {
	return map[string]method{
		"spawn": take((*socket).spawn), "processWait": take((*socket).processWait), "processKill": take((*socket).processKill),
		"readFile": take((*socket).readFile), "readTextFile": take((*socket).readTextFile), "writeFile": take((*socket).writeFile),
		"writeTextFile": take((*socket).writeTextFile), "mkdir": take((*socket).mkdir), "remove": take((*socket).remove),
		"readDir": take((*socket).readDir), "envGet": take((*socket).envGet), "envSet": take((*socket).envSet),
		"envDelete": take((*socket).envDelete), "envToObject": take((*socket).envToObject),
	}
}

// within reports whether a text is in the strings of a value.
func within(value any, text string) bool {
	switch v := value.(type) {
	case string:
		return strings.Contains(v, text)
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return within(one, text) })
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(v)), func(one any) bool { return within(one, text) })
	}
	return false
}

// process is a process of a sandbox. It outlives the connection over which it was started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of its end
}

type spawnRequest struct {
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	ClearEnv bool              `json:"clearEnv"`
	Dir      string            `json:"cwd"`
	Stdin    *int              `json:"stdinStreamId"`
	Stdout   string            `json:"stdout"`
	Stderr   string            `json:"stderr"`
}

func (c *socket) spawn(in spawnRequest) outcome {
	dir := cmp.Or(in.Dir, "/home/"+User)
	if !c.box.Has(dir) {
		if !c.box.Has("/") { // it is being ended, and so is this connection: no answer arrives
			<-c.over
		}
		return failed("NotFound", "No such cwd '"+dir+"'")
	}
	env := map[string]string{}
	if !in.ClearEnv {
		env = c.box.variables()
	}
	maps.Copy(env, in.Env)
	p := &process{cmd: c.box.Command(User, dir, env, append([]string{in.Command}, in.Args...)...), done: make(chan struct{})}
	if in.Stdin != nil {
		if stream := c.inbound(*in.Stdin); stream != nil {
			p.cmd.Stdin = stream.r
		}
	}
	ids, theirs, err := c.outputs(p.cmd, in.Stdout, in.Stderr)
	if err == nil {
		err = p.cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close() // the process has its own
	}
	if err != nil {
		return failed("Error", err.Error())
	}
	c.s.mu.Lock()
	c.s.spawned++
	c.box.lastProcess++
	pid := c.box.lastProcess
	c.box.processes[pid] = p
	c.s.mu.Unlock()
	c.s.work.Go(func() {
		p.err = p.cmd.Wait()
		close(p.done)
	})
	return outcome{OK: map[string]any{"pid": pid, "stdoutStreamId": ids[0], "stderrStreamId": ids[1]}}
}

// outputs connects a process's outputs, to streams or to nothing.
func (c *socket) outputs(cmd *exec.Cmd, kinds ...string) (ids [2]any, theirs []*os.File, err error) {
	for i, kind := range kinds {
		if kind != "piped" {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return ids, theirs, err
		}
		theirs = append(theirs, w)
		if i == 0 {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
		ids[i] = c.outbound(r)
	}
	return ids, theirs, nil
}

type processRequest struct {
	Pid    int    `json:"pid"`
	Signal string `json:"signal"`
}

func (c *socket) process(pid int) *process {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.box.processes[pid]
}

func (c *socket) processWait(in processRequest) outcome {
	p := c.process(in.Pid)
	if p == nil {
		return failed("NotFound", fmt.Sprintf("no process %d", in.Pid))
	}
	select {
	case <-p.done:
	case <-c.over:
		return failed("Interrupted", "the connection has ended")
	}
	end := map[string]any{"success": p.err == nil, "code": 0, "signal": nil, "oom": nil}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		code := exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
		end["code"] = code
		for name, sig := range signals() {
			if code == 128+int(sig) {
				end["signal"] = name
			}
		}
	}
	return outcome{OK: end}
}

func signals() map[string]syscall.Signal {
	return map[string]syscall.Signal{
		"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL, "SIGINT": syscall.SIGINT, "SIGHUP": syscall.SIGHUP,
	}
}

func (c *socket) processKill(in processRequest) outcome {
	sig, known := signals()[cmp.Or(in.Signal, "SIGTERM")]
	p := c.process(in.Pid)
	if p == nil || !known {
		return failed("NotFound", fmt.Sprintf("no process %d", in.Pid))
	}
	outside := p.cmd.Process.Pid // nsenter's, whose child it is, a moment after it was started
	children := ""
	for children == "" {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outside, outside))
		if children = string(text); err != nil {
			return failed("NotFound", "it has ended")
		}
		select {
		case <-p.done:
			return failed("NotFound", "it has ended")
		case <-time.After(time.Millisecond):
		}
	}
	for child := range strings.FieldsSeq(children) {
		if pid, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
	return outcome{}
}

// tool runs a short program in the sandbox.
func (c *socket) tool(input []byte, args ...string) ([]byte, outcome) {
	cmd := c.box.Command(User, "/home/"+User, nil, args...)
	cmd.Stdin = bytes.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		text := complaint.String()
		for word, kind := range map[string]string{
			"No such file": "NotFound", "Permission denied": "PermissionDenied", "File exists": "AlreadyExists", "cannot overwrite": "AlreadyExists",
			"s a directory": "IsADirectory",
		} {
			if strings.Contains(text, word) {
				return nil, failed(kind, strings.TrimSpace(text))
			}
		}
		return nil, failed("Error", cmp.Or(strings.TrimSpace(text), err.Error()))
	}
	return out.Bytes(), outcome{}
}

type fileRequest struct {
	Path    string          `json:"path"`
	Content json.RawMessage `json:"content"`
	Options struct {
		Append    bool  `json:"append"`
		CreateNew bool  `json:"createNew"`
		Recursive bool  `json:"recursive"`
		Create    *bool `json:"create"`
		Mode      *int  `json:"mode"`
	} `json:"options"`
}

func (c *socket) readFile(in fileRequest) outcome {
	out, res := c.tool(nil, "cat", "--", in.Path)
	if res.Err == nil {
		res.OK = out
	}
	return res
}

func (c *socket) readTextFile(in fileRequest) outcome {
	out, res := c.tool(nil, "cat", "--", in.Path)
	if res.Err == nil {
		res.OK = string(out)
	}
	return res
}

func (c *socket) writeFile(in fileRequest) outcome {
	var content []byte
	if err := json.Unmarshal(in.Content, &content); err != nil {
		return failed("TypeError", err.Error())
	}
	return c.store(in, content)
}

func (c *socket) writeTextFile(in fileRequest) outcome {
	var content string
	if err := json.Unmarshal(in.Content, &content); err != nil {
		return failed("TypeError", err.Error())
	}
	return c.store(in, []byte(content))
}

func (c *socket) store(in fileRequest, content []byte) outcome {
	script := `cat >"$1"`
	switch {
	case in.Options.Append:
		script = `cat >>"$1"`
	case in.Options.CreateNew:
		script = `set -C; cat >"$1"`
	}
	_, res := c.tool(content, "bash", "-c", script, "write", in.Path)
	return res
}

func (c *socket) mkdir(in fileRequest) outcome {
	args := []string{"mkdir", "--", in.Path}
	if in.Options.Recursive {
		args = slices.Insert(args, 1, "-p")
	}
	_, res := c.tool(nil, args...)
	return res
}

func (c *socket) remove(in fileRequest) outcome {
	args := []string{"rm", "-d", "--", in.Path}
	if in.Options.Recursive {
		args[1] = "-r"
	}
	_, res := c.tool(nil, args...)
	return res
}

func (c *socket) readDir(in fileRequest) outcome {
	out, res := c.tool(nil, "find", in.Path+"/", "-mindepth", "1", "-maxdepth", "1", "-printf", `%y%f\0`)
	if res.Err != nil {
		return res
	}
	all := []map[string]any{}
	for one := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if one != "" {
			all = append(all, map[string]any{
				"name": one[1:], "isFile": one[0] == 'f', "isDirectory": one[0] == 'd', "isSymlink": one[0] == 'l',
			})
		}
	}
	return outcome{OK: all}
}

type envRequest struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// variable calls do with the environment of the sandbox.
func (c *socket) variable(do func(env map[string]string) any) outcome {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return outcome{OK: do(c.box.env)}
}

func (c *socket) envGet(in envRequest) outcome {
	return c.variable(func(env map[string]string) any {
		if v, ok := env[in.Key]; ok {
			return v
		}
		return nil
	})
}

func (c *socket) envSet(in envRequest) outcome {
	return c.variable(func(env map[string]string) any { env[in.Key] = in.Value; return nil })
}

func (c *socket) envDelete(in envRequest) outcome {
	return c.variable(func(env map[string]string) any { delete(env, in.Key); return nil })
}

func (c *socket) envToObject(struct{}) outcome {
	return c.variable(func(env map[string]string) any { return maps.Clone(env) })
}
