package tools

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// native is a tool that can run in this process, over a workspace's file system.
type native interface {
	// run reads or changes files. Its errors of the file system become the answer's word.
	run(ctx context.Context, root workspacefs.FS) (answer, error)
}

// RunNative compiles a call and runs it as [Plan.RunNative] does, without sharing [Searches] with others. The error may be that of
// [Compile].
func RunNative(ctx context.Context, root workspacefs.FS, c schemas.Call, input any) (schemas.Result, bool, error) {
	if _, ok := input.(schemas.BashInput); ok {
		return schemas.Result{}, false, nil
	}
	p, err := Compile(c, input)
	if err != nil {
		return schemas.Result{}, true, err
	}
	return p.RunNative(ctx, root, NewSearches(1))
}

// RunNative runs a file tool in this process, with the same result as its compiled run. It returns false for bash, which has no such form.
// It blocks for at most the plan's timeout (or else [schemas.DefaultTimeout]), after which the result reports a timeout, or until a moment
// after ctx ends. The error is that of ctx, or of a file system that refuses or fails.
//
// It uses some tens of megabytes of memory at most, whatever the files and the input are. Searches take turns with the others.
func (p Plan) RunNative(ctx context.Context, root workspacefs.FS, others *Searches) (schemas.Result, bool, error) {
	c := p.call
	t, ok := p.tool.(native)
	if !ok {
		return schemas.Result{}, false, nil
	}
	timeout := p.Timeout
	if timeout <= 0 {
		timeout = schemas.DefaultTimeout
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a, err := p.carryOut(limited, t, root, others)
	if e := ctx.Err(); e != nil && err != nil {
		return schemas.Result{}, true, e
	}
	result := schemas.Result{
		Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: schemas.StatusCompleted,
		Output: &schemas.Output{OK: true, Runtime: "native", DurationMS: time.Since(began).Milliseconds()},
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e := &schemas.Error{Code: schemas.Timeout, Message: "the tool timed out"}
		result.Output.TimedOut, result.Output.ExitCode = true, 124
		result.Output.OK, result.Status, result.Error = false, schemas.StatusFailed, e
		result.Text = "Error: " + e.Message + "\n" + timedOut(timeout)
		return result, true, nil
	}
	if err != nil {
		w, ok := wordOf(err)
		if refused, is := errors.AsType[*schemas.Error](err); is { // the provider of the root has refused: its error is complete
			return schemas.Result{}, true, refused
		}
		if !ok {
			return schemas.Result{}, true, fmt.Errorf("native %s: %w", c.Tool, err)
		}
		a.word = w
	}
	settle(&result, p.tool.present(a))
	return result, true, nil
}

// carryOut runs a tool. Searches take turns.
func (p Plan) carryOut(ctx context.Context, t native, root workspacefs.FS, others *Searches) (answer, error) {
	if tool := p.call.Tool; tool == schemas.ToolGrep || tool == schemas.ToolGlob {
		turns, s, err := others.enter(ctx, p.call.Account)
		defer s.leave()
		if err != nil {
			return answer{}, err
		}
		ctx = turns
	}
	return t.run(ctx, root)
}
