package credentials

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Keys provides the keys that sign attach tokens, and the API keys of accounts that tokens are bound to. It must be safe for concurrent
// use and answer without a round trip.
type Keys interface {
	attachtoken.Keys
	// KeyHashes returns the SHA-256, in hex, of the keys of an account that are valid now.
	KeyHashes(a schemas.AccountID) []string
}

// Accounts authenticates API keys. It must be safe for concurrent use and answer nearly always without a round trip.
type Accounts interface {
	// Authenticate returns the account of a key. Code: denied for an unknown one.
	Authenticate(ctx context.Context, key string) (schemas.AccountID, error)
}

// Times of attach tokens.
const (
	ExpiringWithin = 30 * time.Second // a socket is warned this long before its token expires, or at half of its time if that is later
	keyChecked     = 50 * time.Second // how often the API key behind a token, or a stream, is checked
)

// Verifier verifies API keys and attach tokens, and finds when they stop being valid. It is safe for concurrent use.
type Verifier struct {
	Accounts Accounts
	Keys     Keys // nil: attach tokens are rejected, and keys stay valid for as long as a client is connected
	// Now returns the log's time, by which tokens expire.
	Now func() time.Time
}

// Authenticate returns the account of an API key. Code denied with the status 401: the message is the same for every wrong key. Attach
// tokens are denied too.
func (v Verifier) Authenticate(ctx context.Context, key string) (schemas.AccountID, error) {
	if key == "" {
		return "", web.WithStatus(http.StatusUnauthorized, schemas.Errorf(schemas.Denied,
			"API key required: send the header Authorization: Bearer <key>"))
	}
	if attachtoken.Is(key) {
		return "", schemas.Errorf(schemas.Denied, "this route does not accept attach tokens: use the account's API key")
	}
	a, err := v.Accounts.Authenticate(ctx, key)
	if errors.Is(err, schemas.ErrDenied) || errors.Is(err, schemas.ErrNotFound) {
		return "", web.WithStatus(http.StatusUnauthorized,
			schemas.Errorf(schemas.Denied, "invalid API key: check the key that you send, it may have been rotated"))
	}
	if err != nil {
		return "", fmt.Errorf("authenticate: %w", err)
	}
	return a, nil
}

// Principal is the owner of a credential: an account, identified by its API key, or the holder of an attach token, who may use a part of
// the account.
type Principal struct {
	Account schemas.AccountID
	Key     attachtoken.Fingerprint // of the API key itself, or of the key that the token was made with
	Token   *attachtoken.Claims     // nil: the account itself
}

// Check checks that the principal may do op on the conversation. Code: denied.
func (p Principal) Check(op attachtoken.Op, c schemas.ConversationID) error {
	if p.Token == nil {
		return nil
	}
	return p.Token.Check(op, c)
}

// Reach checks that the principal may send a call. Code: denied.
func (p Principal) Reach(c schemas.Call) error {
	if p.Token == nil {
		return nil
	}
	return p.Token.CheckCall(c)
}

// Principal returns the owner of an API key or attach token. Code denied, with the status 401, if it is invalid.
func (v Verifier) Principal(ctx context.Context, credential string) (Principal, error) {
	if !attachtoken.Is(credential) {
		a, err := v.Authenticate(ctx, credential)
		return Principal{Account: a, Key: Fingerprint(credential)}, err
	}
	t, err := v.verified(credential)
	if err != nil {
		return Principal{}, web.WithStatus(http.StatusUnauthorized, err)
	}
	return Principal{t.Account, t.Key, &t}, nil
}

// OfKey returns the Principal of account a with the API key in the request's Authorization header.
func OfKey(r *http.Request, a schemas.AccountID) Principal {
	return Principal{Account: a, Key: Fingerprint(web.Bearer(r.Header))}
}

// Fingerprint returns the fingerprint of an API key, which identifies the key without revealing it.
func Fingerprint(key string) attachtoken.Fingerprint {
	sum := sha256.Sum256([]byte(key))
	return attachtoken.FingerprintOf(hex.EncodeToString(sum[:]))
}

// verified verifies an attach token and returns its claims. Code: denied.
func (v Verifier) verified(token string) (attachtoken.Claims, error) {
	if v.Keys == nil {
		return attachtoken.Claims{}, schemas.Errorf(schemas.Denied, "this gateway takes no attach tokens: use the account's key")
	}
	t, err := attachtoken.Signer{Keys: v.Keys}.Verify(token, v.Now())
	if err == nil && !v.Good(t.Account, t.Key) {
		err = schemas.Errorf(schemas.Denied, "the API key that created the attach token is no longer valid: create another token")
	}
	return t, err
}

// Good reports whether an account's API key is still valid. Without Keys it always is.
func (v Verifier) Good(a schemas.AccountID, key attachtoken.Fingerprint) bool {
	return v.Keys == nil || slices.ContainsFunc(v.Keys.KeyHashes(a), func(hash string) bool { return attachtoken.FingerprintOf(hash) == key })
}

// Lapsed returns why a principal's credential is no longer valid at now; or, if it is valid, after how long to check again.
func (v Verifier) Lapsed(p Principal, now time.Time) (again time.Duration, why error) {
	if p.Token == nil {
		if !v.Good(p.Account, p.Key) {
			return 0, ErrKeyGone()
		}
		return keyChecked, nil
	}
	left := p.Token.Expires.Sub(now)
	switch {
	case left <= 0:
		return 0, schemas.Errorf(schemas.Denied, "the attach token has expired")
	case !v.Good(p.Account, p.Key):
		return 0, schemas.Errorf(schemas.Denied, "the API key that created the attach token is no longer valid")
	case left > ExpiringWithin:
		left -= ExpiringWithin
	}
	return min(left, keyChecked), nil
}

// ErrKeyGone is the error for a connection whose API key was revoked. Code: denied.
func ErrKeyGone() error {
	return schemas.Errorf(schemas.Denied, "the API key is no longer valid: use the account's current key")
}

// WhileGood returns a context that is cancelled when the principal's credential becomes invalid; its cause then says why. The credential
// is checked by a timer, without a goroutine. The caller must call the CancelFunc.
func (v Verifier) WhileGood(ctx context.Context, p Principal) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	again, why := v.Lapsed(p, v.Now())
	if why != nil {
		end(why)
		return ctx, func() {}
	}
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(again, func() {
		<-set
		switch again, why := v.Lapsed(p, v.Now()); {
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
