package natsauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// DefaultCalloutAccount is the NATS account in which [Callout] puts tenants.
const DefaultCalloutAccount = "TENANTS"

const (
	calloutSubject = "$SYS.REQ.USER.AUTH"
	calloutXKey    = "Nats-Server-Xkey" // header of a request that is sealed: who sealed it
	calloutSlots   = 64
)

// Callout answers an outside NATS server that asks whom it may let in (its auth_callout): tenants, each with permissions for its own
// subjects only, and no other client. Sandjet's own users stand in the server's configuration and are never asked about.
//
// No tenant may be in the NATS account of the log: the server confirms a call to whatever reply subject its publisher named, with rights of
// its own. So tenants are in another account, which imports their few ways from the log's; see deploy/nats/nats.conf. Those that share one
// can have a confirmation sent to a subject to which another of them is subscribed. An account for each closes that too.
type Callout struct {
	Bus     *streams.Bus
	Tenants Tenants
	Keys    CalloutKeys
	// Account is the one of the server's configuration in which tenants are put; {account} in it stands for
	// the tenant's id. Default [DefaultCalloutAccount].
	Account string
	Limits  Limits       // of one connection, as far as the server lets a user be bounded
	Log     *slog.Logger // nil: silent
}

// Run answers until ctx ends, then returns nil. Any number of processes may run it: the server asks
// one of them. Code: invalid (there is no key to sign with).
func (c Callout) Run(ctx context.Context) error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Account == "" {
		c.Account = DefaultCalloutAccount
	}
	if c.Keys.issuer == nil {
		return schemas.Invalidf("keys", "are missing: the server believes only what they sign")
	}
	return c.Bus.Respond(ctx, calloutSubject, calloutSlots, c.answer)
}

// answer answers one request of the server. A request that cannot be answered gets no answer, and the server refuses the client.
func (c Callout) answer(question []byte, h streams.Headers) ([]byte, error) {
	q, err := c.Keys.open(question, h.Get(calloutXKey))
	if err == nil {
		var body []byte
		if body, err = c.Keys.decide(q, c.Account, c.Tenants, c.Limits, c.Bus.Now()); err == nil {
			return body, nil
		}
	}
	c.Log.Warn("auth callout request not answered", "error", err)
	return nil, err
}

// CalloutKeys are the keys of a [Callout]: one signs users, and another, which is optional, opens what the server sealed. Printing them
// shows the public keys only.
type CalloutKeys struct{ issuer, curve nkeys.KeyPair }

// ParseCalloutKeys reads the seeds of keys, each on a line of its own: one of an account (SA…), at most
// one for sealing (SX…). Empty lines and lines that begin with # are skipped. Code: invalid, with
// nothing of what it read.
func ParseCalloutKeys(text []byte) (CalloutKeys, error) {
	const most = 4 << 10
	var k CalloutKeys
	if len(text) > most {
		return k, schemas.Invalidf("keys", "are longer than %d bytes", most)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		line, n = strings.TrimSpace(line), n+1
		if line == "" || line[0] == '#' {
			continue
		}
		place := &k.issuer
		pair, err := nkeys.FromSeed([]byte(line))
		switch {
		case strings.HasPrefix(line, "SX"):
			place = &k.curve
			pair, err = nkeys.FromCurveSeed([]byte(line))
		case !strings.HasPrefix(line, "SA"):
			err = nkeys.ErrInvalidSeed
		}
		if err != nil || *place != nil {
			return CalloutKeys{}, schemas.Invalidf("keys",
				"line %d is not the one seed of an account (SA…) or for encryption (SX…): make both with "+
					"\"sandjet secrets generate --nats-callout\"", n)
		}
		*place = pair
	}
	if k.issuer == nil {
		return CalloutKeys{}, schemas.Invalidf("keys", "no seed of an account (SA…) is among them")
	}
	return k, nil
}

// GenerateCalloutKeys makes both keys, as text for [ParseCalloutKeys].
func GenerateCalloutKeys() ([]byte, error) {
	const op = "make keys"
	issuer, err := nkeys.CreateAccount()
	if err != nil {
		return nil, schemas.Wrap(schemas.Internal, op, "there is no randomness", err)
	}
	curve, err := nkeys.CreateCurveKeys()
	if err != nil {
		return nil, schemas.Wrap(schemas.Internal, op, "there is no randomness", err)
	}
	signs, err := issuer.Seed()
	opens, err2 := curve.Seed()
	if err = errors.Join(err, err2); err != nil {
		return nil, schemas.Wrap(schemas.Internal, op, "a key has no seed", err)
	}
	k := CalloutKeys{issuer, curve}
	return fmt.Appendf(nil, "# For the server's auth_callout: issuer: %s\n%s\n# For the server's auth_callout: xkey: %s\n%s\n",
		k.Issuer(), signs, k.XKey(), opens), nil
}

// Issuer is the public key that the server's auth_callout needs as its issuer.
func (k CalloutKeys) Issuer() string { return public(k.issuer) }

// XKey is the public key that the server's auth_callout may have as its xkey; empty without one.
func (k CalloutKeys) XKey() string { return public(k.curve) }

// String returns the public keys.
func (k CalloutKeys) String() string { return strings.TrimSpace(k.Issuer() + " " + k.XKey()) }

// GoString returns the public keys.
func (k CalloutKeys) GoString() string { return "natsauth.CalloutKeys(" + k.String() + ")" }

func public(k nkeys.KeyPair) string {
	if k == nil {
		return ""
	}
	p, err := k.PublicKey()
	if err != nil {
		return "" // only of a key that was wiped
	}
	return p
}

// open reads a request of the server. Codes: invalid, denied (it is not sealed although there is a key for that).
func (k CalloutKeys) open(body []byte, sender string) (*jwt.AuthorizationRequestClaims, error) {
	const op = "read the server's question"
	switch {
	case k.curve == nil && sender != "":
		return nil, schemas.OpErrorf(schemas.Invalid, op, "it is encrypted: add the seed (SX…) of the server's xkey to the keys")
	case k.curve != nil && sender == "":
		return nil, schemas.OpErrorf(schemas.Denied, op, "it is not encrypted: set xkey to %s in the server's auth_callout", k.XKey())
	case k.curve != nil:
		plain, err := k.curve.Open(body, sender)
		if err != nil {
			return nil, schemas.Wrap(schemas.Invalid, op,
				"it is sealed for another key: is xkey in the server's auth_callout the public part of ours?", err)
		}
		body = plain
	}
	q, err := jwt.DecodeAuthorizationRequestClaims(string(body))
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, op, "it is not understood", err)
	}
	return q, nil
}

// decide answers a request with the user's permissions, or that the user is unknown. It has no side effects.
func (k CalloutKeys) decide(q *jwt.AuthorizationRequestClaims, placement string, tenants Tenants, limits Limits,
	now time.Time) ([]byte, error) {
	const op = "answer the server's question"
	a := jwt.NewAuthorizationResponseClaims(q.UserNkey)
	if a == nil {
		return nil, schemas.OpErrorf(schemas.Invalid, op, "it names no user")
	}
	a.Audience = q.Server.ID
	id, until, known := tenants(q.ConnectOptions.Username, q.ConnectOptions.Password)
	if known && id.Validate() == nil {
		placement = strings.ReplaceAll(placement, "{account}", string(id))
		claims := k.user(q, id, placement, sessionEnd(until, now))
		limits.user(claims)
		user, err := claims.Encode(k.issuer)
		if err != nil {
			return nil, schemas.Wrap(schemas.Internal, op, "the user cannot be signed", err)
		}
		a.Jwt = user
	} else {
		a.Error = "the user is not known, or its key or credential is not valid"
	}
	body, err := a.Encode(k.issuer)
	if err != nil {
		return nil, schemas.Wrap(schemas.Internal, op, "the answer cannot be signed", err)
	}
	if k.curve == nil {
		return []byte(body), nil
	}
	sealed, err := k.curve.Seal([]byte(body), q.Server.XKey)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, op, "the answer cannot be sealed for the server", err)
	}
	return sealed, nil
}

// user returns a tenant's claims for the server.
func (k CalloutKeys) user(q *jwt.AuthorizationRequestClaims, a schemas.AccountID, placement string, until time.Time) *jwt.UserClaims {
	u := jwt.NewUserClaims(q.UserNkey)
	access := AccessOf(a)
	u.Name, u.Audience, u.Expires = string(a), placement, until.Unix()
	u.Pub.Allow.Add(access.Publish...)
	u.Sub.Allow.Add(access.Subscribe...)
	return u
}

// Access is what a tenant's NATS clients may do.
type Access struct {
	Publish, Subscribe []string // subjects
	InboxPrefix        string   // under which a client's inboxes must be on an outside server, and may be on an embedded one
}

// AccessOf returns what a tenant may do on every server. On an embedded server, where it has a NATS account of its own, default inboxes
// work too.
func AccessOf(a schemas.AccountID) Access {
	prefix := subjects.ReplyPrefix(a)
	return Access{
		Publish:     []string{subjects.IntakeSubject(a), subjects.RPCCall + "." + string(a), subjects.RPCApprovals + "." + string(a)},
		Subscribe:   []string{subjects.LivePrefix(a) + ".>", prefix + ".>"},
		InboxPrefix: prefix,
	}
}

// sessionEnd returns when a tenant's connection must authenticate again.
func sessionEnd(until, now time.Time) time.Time {
	end := now.Add(tenantSession)
	if !until.IsZero() && until.Before(end) {
		return until
	}
	return end
}

var _ json.Marshaler = CalloutKeys{}

// MarshalJSON shows the public keys alone.
func (k CalloutKeys) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"issuer": k.Issuer(), "xkey": k.XKey()})
}
