package accounts

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Store provides the records of accounts. All fields are required and must be safe for concurrent use. A body is the JSON that a client
// sent. If a revision other than 0 is given, the record must have it; otherwise the error is a conflict with the field If-Match. Code
// not_found: there is no record with that id, or it belongs to another account.
type Store struct {
	Accounts  Accounts
	Documents Documents
	Manifests Manifests
	Variables Variables
}

// Accounts stores the accounts and their keys.
type Accounts interface {
	List(ctx context.Context) ([]schemas.Document, error)
	Get(ctx context.Context, a schemas.AccountID) (schemas.Document, error)
	// Count returns the number of accounts.
	Count() int
	// Add makes an account and its key, which is not stored.
	Add(ctx context.Context, body []byte) (d schemas.Document, key string, err error)
	Patch(ctx context.Context, a schemas.AccountID, patch []byte, revision uint64) (schemas.Document, error)
	// RotateKey makes a new key; former ones work until overlap has passed.
	RotateKey(ctx context.Context, a schemas.AccountID, overlap time.Duration) (string, error)
	// RecordUsage returns how much an account's records are in total, and the limit in bytes; 0 means no limit.
	RecordUsage(a schemas.AccountID) (kept schemas.Amount, limit int64)
	// Remove removes an account with all its records, and counts them.
	Remove(ctx context.Context, a schemas.AccountID, revision uint64) (schemas.RemovedRecords, error)
}

// Documents stores the records in the collections of accounts.
type Documents interface {
	List(ctx context.Context, a schemas.AccountID, c schemas.Collection) ([]schemas.Document, error)
	Get(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string) (schemas.Document, error)
	Add(ctx context.Context, a schemas.AccountID, c schemas.Collection, body []byte) (schemas.Document, error)
	Patch(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, patch []byte, revision uint64) (schemas.Document, error)
	Remove(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, revision uint64) error
	// ToolVisibility returns which tools a model may see for an agent. Code: not_found.
	ToolVisibility(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (schemas.ToolVisibility, error)
}
