// Package invocation is what the provider lambda and the program in its functions say to each other: one request and one response,
// JSON each, as the payloads of an invocation.
//
// Fields that a side does not know are skipped, so a function's image and its workers may differ by a version.
package invocation

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// Limits of a request and of a response.
const (
	MaxPayload  = 6 << 20   // bytes of either: AWS takes 6,291,556 in a synchronous invocation
	MaxCode     = 10 << 20  // bytes of a script
	MaxEnv      = 512 << 10 // bytes of all variables, a sandbox's and a call's
	MaxArgs     = 64
	MaxArgBytes = 64 << 10 // of all arguments together
	MaxOutput   = schemas.MaxOutputLimit
	MaxTimeout  = 300 * time.Second
	MaxGrace    = 10 * time.Second // between TERM and KILL
)

// WorkspacesPath is where functions with a file system have all workspaces.
const WorkspacesPath = "/mnt/workspaces"

// Request is one command.
type Request struct {
	Runtime   string `json:"runtime"`               // bash, python, node or uv, or another name of one
	Code      string `json:"code,omitempty"`        // the script
	CodeBytes []byte `json:"code_base64,omitempty"` // in place of Code, for a script that is no UTF-8
	// Namespace names the files of a workspace. Empty: the command has none.
	Namespace     string            `json:"namespace,omitempty"`
	WorkspaceRoot string            `json:"workspace_root,omitempty"` // where the caller thinks that workspaces are; empty: it does not mind
	ReadOnly      bool              `json:"read_only,omitempty"`
	Sockets       bool              `json:"sockets,omitempty"` // the command may use the network that its function has
	Confine       bool              `json:"confine,omitempty"` // refuse it where it cannot be confined, whatever the function allows
	TimeoutMS     int64             `json:"timeout_ms,omitempty"`
	GraceMS       int64             `json:"grace_ms,omitempty"`
	NotAfterMS    int64             `json:"not_after_ms,omitempty"` // Unix time after which the command is not started; 0: always
	Args          []string          `json:"args,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	Stdin         []byte            `json:"stdin_base64,omitempty"`
	Dir           string            `json:"dir,omitempty"`          // absolute; empty: the workspace, else a scratch folder
	OutputLimit   int               `json:"output_limit,omitempty"` // bytes kept of each stream; 0: MaxOutput
}

// Response is the result of a request. If OK is false nothing was started, and Stderr says why.
type Response struct {
	OK          bool   `json:"ok"`
	Code        string `json:"code,omitempty"` // with OK false: invalid, unsupported or unavailable
	Late        bool   `json:"late,omitempty"` // with OK false: it came after NotAfterMS
	Runtime     string `json:"runtime"`
	ExitCode    *int   `json:"exit_code"` // nil when it timed out, or was not started; 128+n when signal n killed it
	TimedOut    bool   `json:"timed_out"`
	DurationMS  int64  `json:"duration_ms"`
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	StdoutBytes []byte `json:"stdout_base64,omitempty"` // in place of Stdout, for what is no UTF-8
	StderrBytes []byte `json:"stderr_base64,omitempty"`
	// StdoutTotal and StderrTotal count what was printed, also what is left out.
	StdoutTotal int64    `json:"stdout_total"`
	StderrTotal int64    `json:"stderr_total"`
	Truncated   bool     `json:"truncated,omitempty"`
	Workspace   string   `json:"workspace,omitempty"`
	CPUMicros   int64    `json:"cpu_usec,omitempty"`
	Confined    []string `json:"confined,omitempty"` // what kept the command from the rest of its function: landlock, seccomp
}

// Runtimes returns the runtimes that a request may name, and the canonical name of each.
func Runtimes() map[string]string {
	return map[string]string{
		"bash": "bash", "sh": "bash", "python": "python", "python3": "python", "py": "python",
		"node": "node", "nodejs": "node", "js": "node", "javascript": "node", "uv": "uv",
	}
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// IsNamespace reports whether text is valid as a workspace's namespace: one path component of letters, digits, dots, dashes and _.
func IsNamespace(text string) bool { return namespacePattern.MatchString(text) }

// DecodeRequest decodes and validates a request. Code: invalid.
func DecodeRequest(payload []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, schemas.Invalidf("", "the request is not JSON of this form: %v", err)
	}
	return r, r.check()
}

// Script returns the script's text.
func (r *Request) Script() string {
	if len(r.CodeBytes) > 0 {
		return string(r.CodeBytes)
	}
	return r.Code
}

// SetScript sets the script's text.
func (r *Request) SetScript(text string) {
	r.Code, r.CodeBytes = text, nil
	if !utf8.ValidString(text) {
		r.Code, r.CodeBytes = "", []byte(text)
	}
}

// Timeout returns how long the command may take.
func (r *Request) Timeout() time.Duration {
	if r.TimeoutMS == 0 {
		return schemas.DefaultTimeout
	}
	return time.Duration(r.TimeoutMS) * time.Millisecond
}

// Grace returns the time between SIGTERM and SIGKILL.
func (r *Request) Grace() time.Duration { return time.Duration(r.GraceMS) * time.Millisecond }

// NotAfter sets the latest time at which the command may be started.
func (r *Request) NotAfter(at time.Time) { r.NotAfterMS = at.UnixMilli() }

// Late reports whether it is too late to start the command.
func (r *Request) Late(now time.Time) bool { return r.NotAfterMS > 0 && now.UnixMilli() > r.NotAfterMS }

// Limit returns how many bytes of each output are kept.
func (r *Request) Limit() int {
	if r.OutputLimit == 0 {
		return MaxOutput
	}
	return r.OutputLimit
}

func (r *Request) check() error {
	bytes := 0
	for name, value := range r.Env {
		bytes += len(name) + len(value)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return schemas.Invalidf("env", "%q cannot be a variable: a name has no =, and nothing has NUL", schemas.Quotable(name))
		}
	}
	args := 0
	for _, a := range r.Args {
		args += len(a)
	}
	switch {
	case Runtimes()[strings.ToLower(r.Runtime)] == "":
		return schemas.Invalidf("runtime", "%q is unknown: use bash, python, node or uv", schemas.Quotable(r.Runtime))
	case r.Code != "" && len(r.CodeBytes) > 0:
		return schemas.Invalidf("code", "is there twice, as text and as bytes")
	case len(r.Script()) > MaxCode:
		return schemas.Invalidf("code", "has %d bytes: the limit is %d", len(r.Script()), MaxCode)
	case strings.Contains(r.Script(), "\x00"):
		return schemas.Invalidf("code", "holds NUL, which no script may")
	case bytes > MaxEnv:
		return schemas.Invalidf("env", "has %d bytes: the limit is %d", bytes, MaxEnv)
	case len(r.Args) > MaxArgs || args > MaxArgBytes:
		return schemas.Invalidf("args", "are %d with %d bytes: the limits are %d and %d", len(r.Args), args, MaxArgs, MaxArgBytes)
	case slices.ContainsFunc(r.Args, func(a string) bool { return strings.Contains(a, "\x00") }):
		return schemas.Invalidf("args", "hold NUL")
	case r.TimeoutMS < 0 || r.Timeout() > MaxTimeout:
		return schemas.Invalidf("timeout_ms", "%d is out of range: 1 to %d", r.TimeoutMS, MaxTimeout.Milliseconds())
	case r.NotAfterMS < 0:
		return schemas.Invalidf("not_after_ms", "%d is out of range: at least 0", r.NotAfterMS)
	case r.GraceMS < 0 || r.Grace() > MaxGrace:
		return schemas.Invalidf("grace_ms", "%d is out of range: 0 to %d", r.GraceMS, MaxGrace.Milliseconds())
	case r.OutputLimit < 0 || r.OutputLimit > MaxOutput:
		return schemas.Invalidf("output_limit", "%d is out of range: 1 to %d", r.OutputLimit, MaxOutput)
	case r.Namespace != "" && !IsNamespace(r.Namespace):
		return schemas.Invalidf("namespace", "%q is not the name of a workspace's files", schemas.Quotable(r.Namespace))
	case r.Dir != "" && r.Dir[0] != '/' || strings.Contains(r.Dir, "\x00"):
		return schemas.Invalidf("dir", "%q is not an absolute path", schemas.Quotable(r.Dir))
	}
	return nil
}

// DecodeResponse decodes a response, and checks that it says how the command ended. Code: internal.
func DecodeResponse(payload []byte) (Response, error) {
	var r Response
	if err := json.Unmarshal(payload, &r); err != nil {
		return r, schemas.Wrap(schemas.Internal, "", "the function's answer is no JSON of this form", err)
	}
	switch {
	case r.OK && r.ExitCode == nil && !r.TimedOut:
		return r, schemas.Errorf(schemas.Internal, "the function's answer does not say how the command ended")
	case r.OK && r.ExitCode != nil && (*r.ExitCode < 0 || *r.ExitCode > 255):
		return r, schemas.Errorf(schemas.Internal, "the function's answer has the exit code %d, which there is not", *r.ExitCode)
	case r.OK && r.ExitCode != nil && r.TimedOut:
		return r, schemas.Errorf(schemas.Internal, "the function's answer has an exit code of a command that timed out")
	case r.DurationMS < 0 || r.StdoutTotal < 0 || r.StderrTotal < 0 || len(r.Out()) > mostBack || len(r.Err()) > mostBack:
		return r, schemas.Errorf(schemas.Internal, "the function's answer has a number that is out of range")
	}
	return r, nil
}

// mostBack is how long a stream is with the line that says what is left out.
const mostBack = MaxOutput + 64

// Out returns the kept part of standard output.
func (r *Response) Out() []byte { return either(r.Stdout, r.StdoutBytes) }

// Err returns the kept part of standard error.
func (r *Response) Err() []byte { return either(r.Stderr, r.StderrBytes) }

// SetOut sets the kept part of standard output.
func (r *Response) SetOut(b []byte) { r.Stdout, r.StdoutBytes = split(b) }

// SetErr sets the kept part of standard error.
func (r *Response) SetErr(b []byte) { r.Stderr, r.StderrBytes = split(b) }

func either(text string, bytes []byte) []byte {
	if len(bytes) > 0 {
		return bytes
	}
	return []byte(text)
}

func split(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}
