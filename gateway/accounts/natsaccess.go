package accounts

import (
	"context"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natsauth"
)

// NATSAccess issues passwords for accounts' NATS clients. It must be safe for concurrent use.
type NATSAccess interface {
	// IssueNATS makes a password that is good until it expires. Codes: not_found, unsupported.
	IssueNATS(ctx context.Context, a schemas.AccountID, ttl time.Duration) (password string, expires time.Time, err error)
}

// natsRequest is the body of a request for a NATS credential.
type natsRequest struct {
	TTL *schemas.Duration `json:"ttl,omitzero"` // default [schemas.DefaultNATSTTL]
}

// postNATSCredential issues a credential for the account's NATS clients and returns it; no other response contains it.
func (s *Server) postNATSCredential(w http.ResponseWriter, r *http.Request, _ *Store, a schemas.AccountID) error {
	var in natsRequest
	if err := web.DecodeBody(w, r, true, &in); err != nil {
		return err
	}
	ttl := schemas.DefaultNATSTTL
	if in.TTL != nil {
		ttl = time.Duration(*in.TTL)
	}
	if ttl < schemas.MinNATSTTL || ttl > schemas.MaxNATSTTL {
		return schemas.Invalidf("ttl", "%s is out of range: %s to %s", ttl, schemas.MinNATSTTL, schemas.MaxNATSTTL)
	}
	if s.NATS == nil {
		return schemas.Errorf(schemas.Unsupported, "this gateway issues no credentials for NATS: an account's id and key are one")
	}
	password, expires, err := s.NATS.IssueNATS(r.Context(), a, ttl)
	if err != nil {
		return err
	}
	access := natsauth.AccessOf(a)
	web.WriteJSON(w, http.StatusCreated, schemas.NATSCredential{
		User: string(a), Password: password, URL: s.NATSURL, Expires: expires,
		Publish: access.Publish, Subscribe: access.Subscribe, InboxPrefix: access.InboxPrefix,
	})
	return nil
}
