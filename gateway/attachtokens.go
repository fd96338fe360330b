package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/schemas"
)

// Keys sign attach tokens, and know the keys of the accounts that they are bound to. Its methods may be
// called from many goroutines and answer without a round trip.
type Keys interface {
	attachtoken.Keys
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
	Ops           []attachtoken.Op  `json:"ops,omitzero"` // default: read
	TTL           *schemas.Duration `json:"ttl,omitzero"` // default: 15m
	// Of the calls that are sent with it; see [attachtoken.Reach].
	Workspaces []schemas.WorkspaceID `json:"workspaces,omitzero"`
	Sandboxes  []schemas.SandboxID   `json:"sandboxes,omitzero"`
	Agents     []schemas.AgentID     `json:"agents,omitzero"`
	Tools      []schemas.Tool        `json:"tools,omitzero"`
}

// principal is who a credential belongs to: an account by its key, or whoever has a token for some of it.
type principal struct {
	account schemas.AccountID
	key     attachtoken.Fingerprint // of the account's key that it is, or its token was made with
	token   *attachtoken.Claims     // nil: the account itself
}

// check reports whether the principal may do op on the conversation. Code: denied.
func (h principal) check(op attachtoken.Op, c schemas.ConversationID) error {
	if h.token == nil {
		return nil
	}
	return h.token.Check(op, c)
}

// reach refuses a call that the principal may not send. Code: denied.
func (h principal) reach(c schemas.Call) error {
	if h.token == nil {
		return nil
	}
	return h.token.CheckCall(c)
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
	ttl, now := attachtoken.DefaultTTL, g.Bus.Now()
	if in.TTL != nil {
		ttl = time.Duration(*in.TTL)
	}
	if len(in.Ops) == 0 {
		in.Ops = []attachtoken.Op{attachtoken.Read}
	}
	t := attachtoken.Claims{
		Account: a, Key: fingerprint(bearer(r.Header)), Conversations: in.Conversations, Ops: in.Ops,
		Expires: now.Add(ttl).UTC().Truncate(time.Second),
		Reach:   attachtoken.Reach{Workspaces: in.Workspaces, Sandboxes: in.Sandboxes, Agents: in.Agents, Tools: in.Tools},
	}
	if err := t.Validate(now); err != nil {
		return err
	}
	token, err := attachtoken.Signer{Keys: g.Keys}.Sign(t)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, AttachToken{token, t.Expires})
	return nil
}

// held asks for a key or an attach token first. What the token allows is left to the handler.
func (g *Gateway) held(h func(http.ResponseWriter, *http.Request, principal) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !allowedOrigin(r, g.Origins) {
			return schemas.Errorf(schemas.Denied, "", "origin not allowed: the operator can allow it with --origins")
		}
		who, err := g.principal(r.Context(), bearer(r.Header))
		if err != nil {
			return err
		}
		if err := holdOf(r.Context()).enter(w, who.account); err != nil {
			return err
		}
		return h(w, r, who)
	}
}

// principal finds who a key or attach token belongs to, or says 401.
func (g *Gateway) principal(ctx context.Context, credential string) (principal, error) {
	if !attachtoken.Is(credential) {
		a, err := g.authenticate(ctx, credential)
		return principal{account: a, key: fingerprint(credential)}, err
	}
	t, err := g.verified(credential)
	if err != nil {
		return principal{}, withStatus(http.StatusUnauthorized, err)
	}
	return principal{t.Account, t.Key, &t}, nil
}

// keyPrincipal is the account whose key a request brought.
func keyPrincipal(r *http.Request, a schemas.AccountID) principal {
	return principal{account: a, key: fingerprint(bearer(r.Header))}
}

func fingerprint(key string) attachtoken.Fingerprint {
	sum := sha256.Sum256([]byte(key))
	return attachtoken.FingerprintOf(hex.EncodeToString(sum[:]))
}

// verified is the attach token that a client sent. Code: denied.
func (g *Gateway) verified(token string) (attachtoken.Claims, error) {
	if g.Keys == nil {
		return attachtoken.Claims{}, schemas.Errorf(schemas.Denied, "", "this gateway takes no attach tokens: use the account's key")
	}
	t, err := attachtoken.Signer{Keys: g.Keys}.Verify(token, g.Bus.Now())
	if err == nil && !g.good(t.Account, t.Key) {
		err = schemas.Errorf(schemas.Denied, "", "the API key that created the attach token is no longer valid: create another token")
	}
	return t, err
}

// good reports whether a key of an account is still one. Without Keys nobody knows better.
func (g *Gateway) good(a schemas.AccountID, key attachtoken.Fingerprint) bool {
	return g.Keys == nil || slices.ContainsFunc(g.Keys.KeyHashes(a), func(hash string) bool { return attachtoken.FingerprintOf(hash) == key })
}

// lapsed says why a principal's credential is no longer good at a time, or else when to look again.
func (g *Gateway) lapsed(h principal, now time.Time) (again time.Duration, why error) {
	if h.token == nil {
		if !g.good(h.account, h.key) {
			return 0, errKeyGone()
		}
		return keyChecked, nil
	}
	left := h.token.Expires.Sub(now)
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

// whileGood is ctx until the principal's credential ends: its cause then says why. It is a timer, and no goroutine,
// that looks.
func (g *Gateway) whileGood(ctx context.Context, h principal) (context.Context, context.CancelFunc) {
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
