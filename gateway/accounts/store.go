package accounts

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Store keeps the accounts and their collections. Its methods may be called from many goroutines. Bodies
// are what clients sent; a revision other than 0 is the only one that may be changed, and another is a
// conflict whose field is If-Match. Code not_found: there is none of that id, or it is another account's.
type Store interface {
	Collections
	Manifests
	Variables

	Accounts(ctx context.Context) ([]schemas.Document, error)
	Account(ctx context.Context, a schemas.AccountID) (schemas.Document, error)
	// CountAccounts is how many accounts there are.
	CountAccounts() int
	// AddAccount makes an account and its key, which is not kept.
	AddAccount(ctx context.Context, body []byte) (d schemas.Document, key string, err error)
	PatchAccount(ctx context.Context, a schemas.AccountID, patch []byte, revision uint64) (schemas.Document, error)
	// RotateAccount makes a new key; former ones work until overlap has passed.
	RotateAccount(ctx context.Context, a schemas.AccountID, overlap time.Duration) (string, error)
	// RecordUsage is what all records of an account are together, and how many bytes they may be; 0: any number.
	RecordUsage(a schemas.AccountID) (kept schemas.Amount, limit int64)
	// RemoveAccount removes an account with all its records, and counts them.
	RemoveAccount(ctx context.Context, a schemas.AccountID, revision uint64) (schemas.RemovedRecords, error)
}

// Collections keeps the collections of the accounts, as [Store] keeps the accounts themselves.
type Collections interface {
	Documents(ctx context.Context, a schemas.AccountID, c schemas.Collection) ([]schemas.Document, error)
	Document(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string) (schemas.Document, error)
	AddDocument(ctx context.Context, a schemas.AccountID, c schemas.Collection, body []byte) (schemas.Document, error)
	PatchDocument(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, patch []byte,
		revision uint64) (schemas.Document, error)
	RemoveDocument(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, revision uint64) error
	// ToolVisibility says what a model is to be shown for an agent. Codes: not_found.
	ToolVisibility(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (schemas.ToolVisibility, error)
}
