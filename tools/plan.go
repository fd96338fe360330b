package tools

import (
	"slices"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Plan is a compiled call: the run that executes it.
type Plan struct {
	Script string // a constant for each file tool; the command for bash
	Stdin  []byte // parameters and payload of a file tool
	// ReadOnly reports that the run changes nothing in the workspace.
	ReadOnly bool
	// Live reports that the run's output is for people. That of a file tool is an encoded answer.
	Live bool
	// OutputLimit is the limit that the answer of a file tool needs, regardless of the sandbox's limit. 0: the sandbox's limit applies.
	OutputLimit int
	// Timeout is the time limit that is named in the text about a timeout. 0: the duration of the run is named.
	Timeout time.Duration

	call schemas.Call
	tool tool
}

// tool is one compiled call of one tool.
type tool interface {
	// present makes the text and data of an answer. It has no side effects.
	present(a answer) outcome
}

// outcome is a file tool's result before it is written to a [schemas.Result].
type outcome struct {
	text string
	data any
	err  *schemas.Error // the tool failed
}

// Compile compiles a call with its decoded input ([schemas.DecodeInput]). It depends on its arguments only and has no side effects. Codes:
// invalid (the input cannot succeed, whatever the files are), unsupported.
func Compile(c schemas.Call, input any) (Plan, error) {
	switch in := input.(type) {
	case schemas.BashInput:
		return compileBash(c, in)
	case schemas.ReadInput:
		return compileFile(c, input, prelude+readScript)(newRead(c, in))
	case schemas.WriteInput:
		return compileFile(c, input, prelude+writeScript)(newWrite(c, in))
	case schemas.EditInput:
		return compileFile(c, input, prelude+editScript)(newEdit(c, in))
	case schemas.GlobInput:
		return compileFile(c, input, prelude+globScript)(newGlob(c, in))
	case schemas.GrepInput:
		return compileFile(c, input, prelude+grepScript)(newGrep(c, in))
	case schemas.LSInput:
		return compileFile(c, input, prelude+lsScript)(newLS(c, in))
	}
	if _, ok := input.(schemas.LoadSkillInput); ok {
		return Plan{OutputLimit: schemas.MaxOutputLimit, call: c}, nil // a [SkillStage] has its runs
	}
	return Plan{}, schemas.OpErrorf(schemas.Internal, "compile", "the input of %s has the type %T", c.Tool, input)
}

// fileTool is a tool that works on the files of a workspace.
type fileTool interface {
	tool
	native
	stdin() []byte // for the script
}

func compileFile(c schemas.Call, input any, script string) func(fileTool, error) (Plan, error) {
	return func(t fileTool, err error) (Plan, error) {
		if err != nil {
			return Plan{}, err
		}
		_, edits := input.(schemas.EditInput)
		_, writes := input.(schemas.WriteInput)
		return Plan{
			Script: script, Stdin: t.stdin(), ReadOnly: !edits && !writes, OutputLimit: schemas.MaxOutputLimit,
			Timeout: time.Duration(c.Timeout), call: c, tool: t,
		}, nil
	}
}

// Command returns the run of the plan. The caller adds the folder, the timeout and the box, but must not change OutputLimit, or a long
// answer could not be read.
func (p Plan) Command() providers.Command {
	return providers.Command{Script: p.Script, Stdin: p.Stdin, Timeout: p.Timeout, OutputLimit: p.OutputLimit}
}

// Render returns the result of a run. It has no side effects and accepts any output of a box: an invalid answer becomes a failed result.
func (p Plan) Render(r providers.Result) schemas.Result {
	result := schemas.Result{Call: p.call.ID, Conversation: p.call.Conversation, Tool: p.call.Tool, Status: schemas.StatusCompleted}
	result.Output = outputOf(r)
	if t, ok := p.tool.(bash); ok {
		result.Output.Stdout, result.Output.Stderr = valid(r.Stdout), valid(r.Stderr)
		result.Output.InvalidBytes = schemas.InvalidBytes(r.Stdout) + schemas.InvalidBytes(r.Stderr)
		result.Text = t.text(r, *result.Output, p.timeout(r))
		result.Notices = slices.Clone(r.Notices)
		return result
	}
	a, err := parseAnswer(r)
	if err != nil {
		fail(&result, err, p.timeout(r), r)
		return result
	}
	settle(&result, p.tool.present(a))
	return result
}

// settle writes a tool's outcome to its result.
func settle(r *schemas.Result, o outcome) {
	r.Text, r.Output.Data = o.text, o.data
	if o.err != nil {
		r.Status, r.Error = schemas.StatusFailed, o.err
		r.Output.OK, r.Output.ExitCode = false, 1
		r.Text = "Error: " + o.err.Message
	}
}

// outputOf returns the structured output that every run has.
func outputOf(r providers.Result) *schemas.Output {
	return &schemas.Output{
		OK:      r.ExitCode == 0 && !r.TimedOut && !r.OOMKilled,
		Runtime: r.Runtime, ExitCode: r.ExitCode, TimedOut: r.TimedOut, Truncated: r.Truncated, OOMKilled: r.OOMKilled,
		DurationMS: r.Duration.Milliseconds(), TotalBytes: r.StdoutBytes + r.StderrBytes,
		FullOutput: relative(r.FullOutput), Isolation: r.Isolation,
	}
}

func (p Plan) timeout(r providers.Result) time.Duration {
	if p.Timeout > 0 {
		return p.Timeout
	}
	return r.Duration
}
