package providers

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Lister is the capability to list the kept boxes of a deployment as the provider itself sees them, independently of any record. It finds
// a box whose worker died before writing the record, and shows that the box of a record is gone.
type Lister interface {
	// ListKept returns every box that was reserved with a Spec of this Deployment and was not released, whatever its state. Boxes
	// of another deployment, and those whose Spec named none, are never among them. A box that is being made or released
	// meanwhile may be there or not. It blocks for as long as the provider takes to answer.
	//
	// Codes: unavailable (the provider does not answer: what is there is not known), invalid (the deployment is empty). Where the error
	// is a [PartialList], what is returned beside it is everything but the boxes of some accounts.
	ListKept(ctx context.Context, deployment string) ([]KeptBox, error)
}

// PartialList is the error of a list that may lack boxes of some accounts, and has all of the others. Code: unavailable.
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

// KeptBox is a kept box as its provider sees it.
type KeptBox struct {
	// Ref is what Release takes. Of a box in which nothing runs the Epoch may be another than that with which it was reserved.
	Ref     schemas.Ref
	Key     string // with which it was reserved
	Account schemas.AccountID
	Age     time.Duration // since the box was made
	State   BoxState
}

// BoxState is the state of a kept box.
type BoxState string

// The states of a kept box.
const (
	BoxRunning BoxState = "running"
	BoxPaused  BoxState = "paused" // nothing runs in it, and the next Reserve wakes it
	BoxEnding  BoxState = "ending" // it is being removed
)

// CheckDeployment returns an error for an empty deployment: every Lister calls it first. Code: invalid.
func CheckDeployment(deployment string) error {
	if deployment == "" {
		return schemas.Invalidf("deployment", "must not be empty: sandboxes of others would be listed too")
	}
	return nil
}
