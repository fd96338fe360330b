package schemas

import "time"

// SweepRequest asks for a sweep.
type SweepRequest struct {
	DryRun bool     `json:"dry_run"`
	Grace  Duration `json:"grace"` // what is younger is left alone
}

// SweepReport is what a sweep has found, and done unless it was dry.
type SweepReport struct {
	Orphans []Orphan `json:"orphans"`
	More    bool     `json:"more,omitzero"` // there may be others
	// Unlisted says that the provider cannot list its sandboxes: only records were examined.
	Unlisted bool   `json:"unlisted,omitzero"`
	Error    *Error `json:"error,omitzero"` // why it ended early
}

// Orphan is a sandbox at a provider without a record, or a record without one.
type Orphan struct {
	Key   string    `json:"key"` // <account>.<sandbox>.<workspace>
	Ref   string    `json:"ref"` // the sandbox at its provider
	Since time.Time `json:"since"`
	// Action is what is done about it.
	Action SweepAction `json:"action"`
	Done   bool        `json:"done"`
}

// SweepAction is what a sweep does about an orphan.
type SweepAction string

// The actions.
const (
	// SweepAdopt gives a sandbox a record: from then on it is used, and ended when it is idle, old or deleted, as any other.
	SweepAdopt SweepAction = "adopt"
	// SweepForget removes the record of a sandbox that is not there.
	SweepForget SweepAction = "forget"
	// SweepEnd ends a sandbox whose key has a record that names another one: two were made at once, and no call or job is in this one.
	SweepEnd SweepAction = "end"
	// SweepLeave leaves a sandbox alone whose key means nothing to this version: a person must look at it.
	SweepLeave SweepAction = "leave"
)
