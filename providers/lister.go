package providers

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Lister is the capability to list the persistent sandboxes of a deployment as the provider itself knows them, independently of any
// record. It finds a sandbox whose worker died before it wrote the record, and shows that the sandbox of a record is gone.
type Lister interface {
	// ListKept returns every sandbox that was reserved with a Spec of this Deployment and was not released, whatever its state. It never
	// returns sandboxes of another deployment or of a Spec without one. A sandbox that is being created or released meanwhile may be
	// missing. It blocks until the provider responds.
	//
	// Codes: unavailable (the provider does not respond, so nothing is known), invalid (the deployment is empty). If the error is a
	// [PartialList], the list is also returned, without the sandboxes of some accounts.
	ListKept(ctx context.Context, deployment string) ([]KeptBox, error)
}

// PartialList is the error of a list that may lack sandboxes of some accounts, and has all sandboxes of the others. Code: unavailable.
type PartialList struct {
	Accounts []schemas.AccountID // sorted
}

// Error implements error.
func (e *PartialList) Error() string {
	return fmt.Sprintf("the sandboxes of %d accounts are not known", len(e.Accounts))
}

// Unwrap returns an error with the code.
func (e *PartialList) Unwrap() error {
	return schemas.OpErrorf(schemas.Unavailable, "list boxes", "%s", e.Error())
}

// KeptBox is a persistent sandbox as its provider knows it.
type KeptBox struct {
	// Ref is the argument of Release. If nothing runs in the sandbox, its Epoch may differ from the one with which it was reserved.
	Ref     schemas.Ref
	Key     string // the key under which it was reserved
	Account schemas.AccountID
	Age     time.Duration // time since it was created
	State   BoxState
}

// BoxState is the state of a persistent sandbox.
type BoxState string

// The states of a persistent sandbox.
const (
	BoxRunning BoxState = "running"
	BoxPaused  BoxState = "paused" // nothing runs in it, and the next Reserve resumes it
	BoxEnding  BoxState = "ending" // it is being removed
)

// CheckDeployment returns an error for an empty deployment: every Lister calls it first. Code: invalid.
func CheckDeployment(deployment string) error {
	if deployment == "" {
		return schemas.Invalidf("deployment", "must not be empty: sandboxes of others would be listed too")
	}
	return nil
}
