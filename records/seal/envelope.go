package seal

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/sandjet/sandjet/schemas"
)

// Algorithm is the only one there is.
const Algorithm = "AES-256-GCM"

const (
	ivBytes  = 12
	tagBytes = 16
)

// Sealed is a secret as it is kept. In JSON its bytes are base64.
type Sealed struct {
	Encrypted  bool   `json:"encrypted"` // always true, for readers that ask what they look at
	Algorithm  string `json:"algorithm"`
	Key        string `json:"key"` // id of the key
	IV         []byte `json:"iv"`
	Tag        []byte `json:"tag"`
	Ciphertext []byte `json:"ciphertext"`
}

// Context is the place of a secret. It is not kept in the envelope, but the envelope opens in the same
// place only.
type Context struct {
	Account schemas.AccountID
	Type    string // of the record
	ID      string // of the record
	Field   string
}

// bytes writes the context so that no two are alike: each part with its length before it.
func (c Context) bytes() []byte {
	parts := [...]string{"sandjet seal 1", string(c.Account), c.Type, c.ID, c.Field}
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// Seal seals plain with the current key. Code: unsupported (the ring has no key).
func (r *Ring) Seal(plain []byte, c Context) (Sealed, error) {
	if r == nil {
		return Sealed{}, schemas.Errorf(schemas.Unsupported,
			"there is no key to encrypt secrets with: give one with --secrets-key-file or SANDJET_SECRETS_KEYS")
	}
	id := r.Current()
	s := Sealed{Encrypted: true, Algorithm: Algorithm, Key: id, IV: make([]byte, ivBytes)}
	_, _ = rand.Read(s.IV) // never fails
	out := r.keys[id].Seal(nil, s.IV, plain, c.bytes())
	s.Ciphertext, s.Tag = out[:len(plain):len(plain)], out[len(plain):]
	return s, nil
}

// Open returns what was sealed. Nothing of it is in an error.
//
// Codes: unavailable (the key is not in the ring, or a newer version sealed it in a way that this one
// does not know), internal (it was changed, or sealed elsewhere or with another key of that id).
func (r *Ring) Open(s Sealed, c Context) ([]byte, error) {
	switch {
	case s.Algorithm != Algorithm:
		return nil, schemas.Errorf(schemas.Unavailable, "it is encrypted by %q, which this version does not know",
			schemas.Quotable(s.Algorithm))
	case !r.Has(s.Key):
		return nil, schemas.Errorf(schemas.Unavailable,
			"it is encrypted with the key %q, which this process does not have: add it with --secrets-key-file or SANDJET_SECRETS_KEYS",
			schemas.Quotable(s.Key))
	case len(s.IV) != ivBytes || len(s.Tag) != tagBytes:
		return nil, damaged(s.Key)
	}
	sealed := make([]byte, 0, len(s.Ciphertext)+len(s.Tag))
	sealed = append(append(sealed, s.Ciphertext...), s.Tag...)
	plain, err := r.keys[s.Key].Open(nil, s.IV, sealed, c.bytes())
	if err != nil {
		return nil, damaged(s.Key)
	}
	return plain, nil
}

func damaged(key string) error {
	return schemas.Errorf(schemas.Internal,
		"what is encrypted with the key %s cannot be decrypted: it was changed, or moved here from another place, or another key has "+
			"that id", key)
}
