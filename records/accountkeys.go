package records

import (
	"github.com/sandjet/sandjet/schemas"
)

// KeyHashes returns the hashes of the currently valid keys of an account; none if there is no such account. It costs no round trip.
func (s Accounts) KeyHashes(a schemas.AccountID) []string {
	t, now := s.tenantOf(a), s.now()
	if t == nil || t.account == nil {
		return nil
	}
	hashes := []string{t.account.KeyHash}
	for _, k := range t.account.Former {
		if now.Before(k.Expires) {
			hashes = append(hashes, k.KeyHash)
		}
	}
	return hashes
}

// Sign signs with the current key of the ring, which every process on the log has. Code: unsupported (there
// is no ring).
func (s Accounts) Sign(purpose string, message []byte) (key string, signature []byte, err error) {
	return s.bucket.ring.Sign(purpose, message)
}

// Verify reports whether a key of the ring signed the message.
func (s Accounts) Verify(key, purpose string, message, signature []byte) bool {
	return s.bucket.ring.Verify(key, purpose, message, signature)
}
