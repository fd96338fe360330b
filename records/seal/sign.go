package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/sandjet/sandjet/schemas"
)

// signingKey derives the key that signs from the one that seals, so that neither says anything of the
// other.
func signingKey(secret []byte) ([]byte, error) {
	k, err := hkdf.Key(sha256.New, secret, nil, "sandjet sign 1", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the signing key: %w", err)
	}
	return k, nil
}

// Sign signs a message with the current key and returns its id and the signature of 32 bytes, an
// HMAC-SHA256. A signature made for one purpose is none for another. Every process with the key can
// check it, and make it. Code: unsupported (the ring has no key).
func (r *Ring) Sign(purpose string, message []byte) (key string, signature []byte, err error) {
	if r == nil {
		return "", nil, schemas.Errorf(schemas.Unsupported, "there is no key to sign with: give one with --secrets-key-file or SANDJET_SECRETS_KEYS")
	}
	key = r.Current()
	return key, r.sign(key, purpose, message), nil
}

// Verify reports whether the signature of a message was made for the purpose with a key of the ring by
// that id. It takes the same time whatever is wrong with the signature.
func (r *Ring) Verify(key, purpose string, message, signature []byte) bool {
	return r.Has(key) && hmac.Equal(r.sign(key, purpose, message), signature)
}

// Derive returns 32 secret bytes for a purpose and a text, the same in every process that has the key with the id, which
// is returned; without an id it is the current one. They say nothing of the key, of signatures and of one another. Codes:
// unsupported (the ring has no key), not_found (it does not have this one).
func (r *Ring) Derive(id, purpose string, text []byte) (key string, secret []byte, err error) {
	if key = id; key == "" {
		key = r.Current()
	}
	switch {
	case r == nil:
		return "", nil, schemas.Errorf(schemas.Unsupported,
			"there is no key to derive secrets from: give one with --secrets-key-file or SANDJET_SECRETS_KEYS")
	case !r.Has(key):
		return "", nil, schemas.Errorf(schemas.NotFound,
			"the key %s is not among those of this process: give it with --secrets-key-file or SANDJET_SECRETS_KEYS", schemas.Quotable(key))
	}
	return key, r.sign(key, "derive "+purpose, text), nil
}

func (r *Ring) sign(key, purpose string, message []byte) []byte {
	h := hmac.New(sha256.New, r.signs[key])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(purpose)))) // no purpose runs into a message
	h.Write([]byte(purpose))
	h.Write(message)
	return h.Sum(nil)
}
