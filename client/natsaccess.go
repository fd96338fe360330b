package client

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// NATSCredential has a credential issued for an account's NATS clients; nothing else shows its password.
// A ttl of 0 stands for an hour. It is tried once. Codes: not_found, invalid, unsupported.
func (c Accounts) NATSCredential(ctx context.Context, a schemas.AccountID, ttl time.Duration) (schemas.NATSCredential, error) {
	var in struct {
		TTL schemas.Duration `json:"ttl,omitzero"`
	}
	in.TTL = schemas.Duration(ttl)
	var out schemas.NATSCredential
	err := c.postOnce(ctx, accountPath(a)+"/nats-credentials", in, &out)
	return out, err
}
