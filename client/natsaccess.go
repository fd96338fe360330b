package client

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// NATSCredential issues a credential for an account's NATS clients; no other response contains its password. A ttl of 0 means an hour. It
// is tried once. Codes: not_found, invalid, unsupported.
func (c Accounts) NATSCredential(ctx context.Context, a schemas.AccountID, ttl time.Duration) (schemas.NATSCredential, error) {
	var in struct {
		TTL schemas.Duration `json:"ttl,omitzero"`
	}
	in.TTL = schemas.Duration(ttl)
	var out schemas.NATSCredential
	err := c.postOnce(ctx, accountPath(a)+"/nats-credentials", in, &out)
	return out, err
}
