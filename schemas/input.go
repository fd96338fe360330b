package schemas

import (
	"encoding/json"
	"time"
)

// parsedInput is the input of a request or call, read once: its value, and the bytes that it was read from, by which it is recognised. It
// never changes, so copies may share it. If the input of a request or call was replaced afterwards, it does not apply and the input is
// read again.
type parsedInput struct {
	tool      Tool
	sent      json.RawMessage // as the request has it
	workspace string          // that it names
	placed    json.RawMessage // as the call has it: without that
	value     any             // nil where there is a misuse
	misuse    *Error          // see [Request.Misuse]
	alone     bool            // the input itself was dropped, see [Call.Read]
}

func (p *parsedInput) typed() (any, error) {
	if p.misuse != nil {
		return nil, p.misuse
	}
	return p.value, nil
}

// of reports whether p was read from raw.
func (p *parsedInput) of(t Tool, raw json.RawMessage) bool {
	return p != nil && p.tool == t && (p.alone && len(raw) == 0 || same(raw, p.placed) || same(raw, p.sent))
}

// same reports whether a and b are the same bytes in memory.
func same(a, b json.RawMessage) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// Parsed checks what the caller is answerable for and returns r with its input read: [Request.Misuse], [Request.Placed],
// [Request.TypedInput], and [Call.TypedInput] of a call that took the input over, then read nothing again. A request that was
// parsed is returned as it is. [DecodeRequest] parses.
func (r Request) Parsed() (Request, error) {
	if r.parsed.of(r.Tool, r.Input) {
		return r, nil
	}
	p, err := r.check()
	if err != nil {
		return r, err
	}
	r.parsed = p
	return r, nil
}

// Misuse is what is wrong with the part of a parsed request that a model writes: the tool does not exist, or the input does not fit
// it. Such a request is admitted, and its call ends with this error, for the model to read. Nil: nothing is wrong, or r was not
// parsed.
func (r Request) Misuse() *Error {
	if !r.parsed.of(r.Tool, r.Input) {
		return nil
	}
	return r.parsed.misuse
}

// InputWorkspace is the workspace that the input of a parsed request names, or "".
func (r Request) InputWorkspace() string {
	if !r.parsed.of(r.Tool, r.Input) || same(r.Input, r.parsed.placed) && !same(r.parsed.placed, r.parsed.sent) {
		return ""
	}
	return r.parsed.workspace
}

// WithoutInputWorkspace returns a parsed request as if its input named no workspace.
func (r Request) WithoutInputWorkspace() Request {
	if r.InputWorkspace() == "" {
		return r
	}
	p := *r.parsed
	p.workspace, p.sent = "", p.placed
	r.Input, r.parsed = p.placed, &p
	return r
}

// TypedInput returns the input of r, without the workspace that it may name, as a value of the types that [DecodeInput] has. Its
// error is the request's misuse.
func (r Request) TypedInput() (any, error) {
	if r.parsed.of(r.Tool, r.Input) {
		return r.parsed.typed()
	}
	r, err := r.Placed()
	if err != nil {
		return nil, err
	}
	return DecodeAcceptedInput(r.Tool, r.Input)
}

// WithInputOf returns c with the parsed input of the request from which it was made.
func (c Call) WithInputOf(r Request) Call {
	if r.parsed.of(c.Tool, c.Input) {
		c.parsed = r.parsed
	}
	return c
}

// Parsed returns a call of the log with its input read, so that [Call.TypedInput] does not read it again; one whose input
// cannot be read comes back as it is, with the reason.
func (c Call) Parsed() (Call, error) {
	if c.parsed.of(c.Tool, c.Input) {
		return c, nil
	}
	value, err := DecodeAcceptedInput(c.Tool, c.Input)
	if err == nil {
		c.parsed = &parsedInput{tool: c.Tool, placed: c.Input, value: value}
	}
	return c, err
}

// Read is [Call.Parsed] for callers that need only [Call.TypedInput]: an input above [MaxApprovalInput] bytes, which events leave out too,
// is dropped once it is read, so that a call in progress does not occupy its memory twice.
func (c Call) Read() (Call, error) {
	c, err := c.Parsed()
	if err == nil && len(c.Input) > MaxApprovalInput {
		c.parsed = &parsedInput{tool: c.Tool, value: c.parsed.value, misuse: c.parsed.misuse, alone: true}
		c.InputSize, c.Input = len(c.Input), nil
	}
	return c, err
}

// TypedInput returns the input of a call as a value of the types that [DecodeInput] has. It reads the input of a call that was
// not [Call.Parsed].
func (c Call) TypedInput() (any, error) {
	c, err := c.Parsed()
	if err != nil {
		return nil, err
	}
	return c.parsed.typed()
}

// Background reports whether r is a command of bash that is to run as a job.
func (r Request) Background() bool { return background(r.TypedInput()) }

// Background reports whether c is a command of bash that is to run as a job.
func (c Call) Background() bool { return background(c.TypedInput()) }

func background(in any, err error) bool {
	b, ok := in.(BashInput)
	return err == nil && ok && b.Background
}

// InputTimeout is the timeout that a command of bash brings in its input, or 0.
func (r Request) InputTimeout() time.Duration {
	if r.Tool != ToolBash {
		return 0
	}
	in, err := r.TypedInput()
	if b, ok := in.(BashInput); err == nil && ok {
		return b.RunTimeout()
	}
	return 0
}
