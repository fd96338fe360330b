package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"time"

	"github.com/sandjet/sandjet/gateway/tickets"
	"github.com/sandjet/sandjet/schemas"
)

// Keys sign attach tokens, and know the keys of the accounts that they are bound to. Its methods may be
// called from many goroutines and answer without a round trip.
type Keys interface {
	tickets.Keys
	// KeyHashes are the SHA-256, in hex, of the keys of an account that are good now.
	KeyHashes(a schemas.AccountID) []string
}

// Times of attach tokens.
const (
	expiringWithin = 30 * time.Second // of its end a socket is told that its token ends, or at half of its time
	keyChecked     = 50 * time.Second // how often the account's key behind a token, or a stream, is looked at
)

// AttachToken is the answer to who had one made.
type AttachToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// attachTokenRequest says what an attach token is for.
type attachTokenRequest struct {
	Conversations []string          `json:"conversations"`
	Ops           []tickets.Op      `json:"ops,omitzero"` // default: read
	TTL           *schemas.Duration `json:"ttl,omitzero"` // default: 15m
	// Of the calls that are sent with it; see [tickets.Reach].
	Workspaces []schemas.WorkspaceID `json:"workspaces,omitzero"`
	Sandboxes  []schemas.SandboxID   `json:"sandboxes,omitzero"`
	Agents     []schemas.AgentID     `json:"agents,omitzero"`
	Tools      []schemas.Tool        `json:"tools,omitzero"`
}

// holder is who a credential belongs to: an account by its key, or whoever has a token for some of it.
type holder struct {
	account schemas.AccountID
	key     tickets.Fingerprint // of the account's key that it is, or its token was made with
	ticket  *tickets.Ticket     // nil: the account itself
}

// check reports whether the holder may do op on the conversation. Code: denied.
func (h holder) check(op tickets.Op, c schemas.ConversationID) error {
	if h.ticket == nil {
		return nil
	}
	return h.ticket.Check(op, c)
}

// reach refuses a call that the holder may not send. Code: denied.
func (h holder) reach(c schemas.Call) error {
	if h.ticket == nil {
		return nil
	}
	return h.ticket.CheckCall(c)
}

// postAttachToken makes an attach token of the key that asks.
func (g *Gateway) postAttachToken(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	var in attachTokenRequest
	if err := decodeBody(w, r, false, &in); err != nil {
		return err
	}
	if g.Keys == nil {
		return schemas.Errorf(schemas.Unsupported, "", "this gateway makes no attach tokens")
	}
	ttl, now := tickets.DefaultTTL, g.Bus.Now()
	if in.TTL != nil {
		ttl = time.Duration(*in.TTL)
	}
	if len(in.Ops) == 0 {
		in.Ops = []tickets.Op{tickets.Read}
	}
	t := tickets.Ticket{
		Account: a, Key: fingerprint(bearer(r.Header)), Conversations: in.Conversations, Ops: in.Ops,
		Expires: now.Add(ttl).UTC().Truncate(time.Second),
		Reach:   tickets.Reach{Workspaces: in.Workspaces, Sandboxes: in.Sandboxes, Agents: in.Agents, Tools: in.Tools},
	}
	if err := t.Validate(now); err != nil {
		return err
	}
	token, err := tickets.Signer{Keys: g.Keys}.Sign(t)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, AttachToken{token, t.Expires})
	return nil
}

// held asks for a key or an attach token first. What the token allows is left to the handler.
func (g *Gateway) held(h func(http.ResponseWriter, *http.Request, holder) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !allowedOrigin(r, g.Origins) {
			return schemas.Errorf(schemas.Denied, "", "origin not allowed: the operator can allow it with --origins")
		}
		who, err := g.holder(r.Context(), bearer(r.Header))
		if err != nil {
			return err
		}
		if err := holdOf(r.Context()).enter(w, who.account); err != nil {
			return err
		}
		return h(w, r, who)
	}
}

// holder finds who a key or attach token belongs to, or says 401.
func (g *Gateway) holder(ctx context.Context, credential string) (holder, error) {
	if !tickets.Is(credential) {
		a, err := g.authenticate(ctx, credential)
		return holder{account: a, key: fingerprint(credential)}, err
	}
	t, err := g.ticket(credential)
	if err != nil {
		return holder{}, withStatus(http.StatusUnauthorized, err)
	}
	return holder{t.Account, t.Key, &t}, nil
}

// keyHolder is the account whose key a request brought.
func keyHolder(r *http.Request, a schemas.AccountID) holder {
	return holder{account: a, key: fingerprint(bearer(r.Header))}
}

func fingerprint(key string) tickets.Fingerprint {
	sum := sha256.Sum256([]byte(key))
	return tickets.FingerprintOf(hex.EncodeToString(sum[:]))
}

// ticket verifies an attach token. Code: denied.
func (g *Gateway) ticket(token string) (tickets.Ticket, error) {
	if g.Keys == nil {
		return tickets.Ticket{}, schemas.Errorf(schemas.Denied, "", "this gateway takes no attach tokens: use the account's key")
	}
	t, err := tickets.Signer{Keys: g.Keys}.Verify(token, g.Bus.Now())
	if err == nil && !g.good(t.Account, t.Key) {
		err = schemas.Errorf(schemas.Denied, "", "the API key that created the attach token is no longer valid: create another token")
	}
	return t, err
}

// good reports whether a key of an account is still one. Without Keys nobody knows better.
func (g *Gateway) good(a schemas.AccountID, key tickets.Fingerprint) bool {
	return g.Keys == nil || slices.ContainsFunc(g.Keys.KeyHashes(a), func(hash string) bool { return tickets.FingerprintOf(hash) == key })
}

// lapsed says why a holder's credential is no longer good at a time, or else when to look again.
func (g *Gateway) lapsed(h holder, now time.Time) (again time.Duration, why error) {
	if h.ticket == nil {
		if !g.good(h.account, h.key) {
			return 0, errKeyGone()
		}
		return keyChecked, nil
	}
	left := h.ticket.Expires.Sub(now)
	switch {
	case left <= 0:
		return 0, schemas.Errorf(schemas.Denied, "", "the attach token has expired")
	case !g.good(h.account, h.key):
		return 0, schemas.Errorf(schemas.Denied, "", "the API key that created the attach token is no longer valid")
	case left > expiringWithin:
		left -= expiringWithin
	}
	return min(left, keyChecked), nil
}

func errKeyGone() error {
	return schemas.Errorf(schemas.Denied, "", "the API key is no longer valid: use the account's current key")
}

// whileGood is ctx until the holder's credential ends: its cause then says why. It is a timer, and no goroutine,
// that looks.
func (g *Gateway) whileGood(ctx context.Context, h holder) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	again, why := g.lapsed(h, g.Bus.Now())
	if why != nil {
		end(why)
		return ctx, func() {}
	}
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(again, func() {
		<-set
		switch again, why := g.lapsed(h, g.Bus.Now()); {
		case why != nil:
			end(why)
		case ctx.Err() == nil:
			timer.Reset(again)
		}
	})
	close(set)
	return ctx, func() {
		end(context.Canceled)
		timer.Stop()
	}
}
