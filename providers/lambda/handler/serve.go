//go:build linux

package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strconv"

	runtime "github.com/aws/aws-lambda-go/lambda"

	"github.com/sandjet/sandjet/providers/lambda/invocation"
	"github.com/sandjet/sandjet/schemas"
)

// The variables of a function that are settings of its program.
const (
	WorkspacesVariable = "SANDBOX_WORKSPACES"       // the folder of all workspaces; not set: the function has none
	UnconfinedVariable = "SANDBOX_ALLOW_UNCONFINED" // true: see Handler.Unconfined
)

// FromEnv returns the handler that a function's environment configures.
func FromEnv(log *slog.Logger) *Handler {
	unconfined, _ := strconv.ParseBool(os.Getenv(UnconfinedVariable)) // anything else is no
	return &Handler{Workspaces: os.Getenv(WorkspacesVariable), Unconfined: unconfined, Log: log}
}

// Serve answers the invocations of this execution environment by Lambda's runtime API, whose address is in AWS_LAMBDA_RUNTIME_API. It
// returns only on an error, and ends the process when the environment ends. Call [Entry] first.
func (h *Handler) Serve() error {
	if err := hide(); err != nil {
		return err
	}
	if err := adopt(); err != nil {
		return err
	}
	runtime.StartWithOptions(h)
	return schemas.Errorf(schemas.Unavailable, "the runtime API has ended")
}

// Invoke answers one invocation. The error is always nil: errors are in the response.
func (h *Handler) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	r, err := invocation.DecodeRequest(payload)
	if err != nil {
		res := invocation.Response{Runtime: r.Runtime, Code: string(schemas.Invalid)}
		res.SetErr([]byte(err.Error()))
		return json.Marshal(res)
	}
	res := h.Run(ctx, r)
	h.log().Info("invocation ended", "ok", res.OK, "timed_out", res.TimedOut, "duration_ms", res.DurationMS, "runtime", res.Runtime)
	return json.Marshal(res)
}
