package records

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Credentials for NATS are issued and not kept: each says when it ends and is signed, with a key of the ring, for the account and the hash
// of the account's key. So it ends at its time or when that key stops working, whichever is first, and every process with the ring and the
// records can check that.
const (
	natsPrefix  = "sjn_"
	natsPurpose = "nats credential 1"
	natsBase    = 36 // of the time in it
)

// IssueNATS makes a password with which an account's NATS clients may connect until it expires, which is a
// whole second. Nothing of it is kept. Codes: not_found, unsupported (there is no ring).
func (s Accounts) IssueNATS(ctx context.Context, a schemas.AccountID, ttl time.Duration) (password string, expires time.Time, err error) {
	if _, err := s.Get(ctx, a); err != nil { // reads it where the copy is late
		return "", time.Time{}, err
	}
	t := s.tenantOf(a)
	if t == nil || t.account == nil {
		return "", time.Time{}, noAccount(a)
	}
	expires = s.now().Add(ttl).UTC().Truncate(time.Second)
	key, signature, err := s.bucket.ring.Sign(natsPurpose, natsMessage(a, t.account.KeyHash, expires))
	if err != nil {
		return "", time.Time{}, err
	}
	return natsPassword{expires, key, signature}.String(), expires, nil
}

// AuthenticateNATS finds the account of a NATS connection, and until when the password is good; zero: until
// the account gets another key. The user is the account's id; the password is its key, or one that
// [Accounts.IssueNATS] made. It costs no round trip.
func (s Accounts) AuthenticateNATS(user, password string) (a schemas.AccountID, until time.Time, ok bool) {
	a, now := schemas.AccountID(user), s.now()
	t := s.tenantOf(a)
	if t == nil || t.account == nil {
		return "", time.Time{}, false
	}
	issued, isIssued := parseNATS(password)
	hash := HashKey(password)
	if !isIssued {
		if of, known := s.authenticate(password, now); !known || of != a {
			return "", time.Time{}, false
		}
	} else if !now.Before(issued.expires) {
		return "", time.Time{}, false
	}
	// A former key gives way at its end, and with it what was issued under it.
	for _, k := range append([]schemas.FormerKey{{KeyHash: t.account.KeyHash}}, t.account.Former...) {
		switch {
		case !k.Expires.IsZero() && !now.Before(k.Expires):
		case !isIssued && k.KeyHash == hash:
			return a, k.Expires, true
		case isIssued && s.bucket.ring.Verify(issued.key, natsPurpose, natsMessage(a, k.KeyHash, issued.expires), issued.signature):
			return a, sooner(issued.expires, k.Expires), true
		}
	}
	return "", time.Time{}, false
}

// natsMessage returns the text to sign. Different arguments give different texts, since only the account has a variable length.
func natsMessage(a schemas.AccountID, keyHash string, expires time.Time) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	return append(append(append(b, keyHash...), 0), a...)
}

// sooner returns the earlier of two times, of which the second may be zero.
func sooner(t, other time.Time) time.Time {
	if !other.IsZero() && other.Before(t) {
		return other
	}
	return t
}

// natsPassword is a parsed password that [Accounts.IssueNATS] made. As text it is safe in a URL.
type natsPassword struct {
	expires   time.Time
	key       string // id of the ring's
	signature []byte
}

func (p natsPassword) String() string {
	return natsPrefix + strings.Join([]string{
		strconv.FormatInt(p.expires.Unix(), natsBase), p.key, base64.RawURLEncoding.EncodeToString(p.signature),
	}, ".")
}

// parseNATS parses an issued password. It does not verify it.
func parseNATS(s string) (p natsPassword, ok bool) {
	const most, parts = 256, 3
	rest, issued := strings.CutPrefix(s, natsPrefix)
	part := strings.Split(rest, ".")
	if !issued || len(s) > most || len(part) != parts {
		return p, false
	}
	end, err := strconv.ParseInt(part[0], natsBase, 64)
	if err != nil || end < 0 {
		return p, false
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(part[2])
	if err != nil {
		return p, false
	}
	p = natsPassword{time.Unix(end, 0).UTC(), part[1], signature}
	return p, p.String() == s // of several ways to write it one counts
}
