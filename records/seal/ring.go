package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// Limits of a ring.
const (
	KeyBytes    = 32 // of a key
	MaxKeyID    = 64 // bytes of a key's id
	MaxKeys     = 64 // keys of a ring
	MaxRingText = 64 << 10
)

// Key is one key with the name under which envelopes know it. Printing it shows the id alone.
type Key struct {
	ID     string
	secret []byte
}

// NewKey returns a key of 32 bytes. An id is 1 to 64 of A-Z a-z 0-9 _ -. Code: invalid.
func NewKey(id string, secret []byte) (Key, error) {
	if !validID(id) {
		return Key{}, schemas.Invalidf("key", "the id %q must be 1 to %d of A-Z a-z 0-9 _ -", schemas.Quotable(id), MaxKeyID)
	}
	if len(secret) != KeyBytes {
		return Key{}, schemas.Invalidf("key", "%s has %d bytes: %d are needed", id, len(secret), KeyBytes)
	}
	return Key{id, slices.Clone(secret)}, nil
}

// Generate makes a new random key with a random id.
func Generate() Key {
	const letters = 8
	secret := make([]byte, KeyBytes)
	_, _ = rand.Read(secret) // never fails
	return Key{"key_" + strings.ToLower(rand.Text()[:letters]), secret}
}

// Line is the key as [Parse] reads it, without the end of the line. It is the secret itself.
func (k Key) Line() string { return k.ID + " " + base64.StdEncoding.EncodeToString(k.secret) }

// String is the id.
func (k Key) String() string { return k.ID }

// GoString is the id.
func (k Key) GoString() string { return "seal.Key(" + k.ID + ")" }

func validID(id string) bool {
	if id == "" || len(id) > MaxKeyID {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
	})
}

// Ring is some keys, of which the first seals. It never changes and is safe for concurrent use. The
// nil ring has no key: it seals and opens nothing, and says how to give it some.
type Ring struct {
	ids   []string // as they were given
	keys  map[string]cipher.AEAD
	signs map[string][]byte // derived of the same secrets
}

// NewRing returns a ring of 1 to 64 keys with ids of their own. Code: invalid.
func NewRing(keys ...Key) (*Ring, error) {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return nil, schemas.Invalidf("keys", "there are %d: 1 to %d are needed", len(keys), MaxKeys)
	}
	r := &Ring{keys: make(map[string]cipher.AEAD, len(keys)), signs: make(map[string][]byte, len(keys))}
	for _, k := range keys {
		if r.Has(k.ID) {
			return nil, schemas.Invalidf("keys", "%s is there twice: each key needs an id of its own", k.ID)
		}
		block, err := aes.NewCipher(k.secret)
		if err != nil {
			return nil, schemas.Invalidf("keys", "%s was not made by NewKey, Generate or Parse", k.ID)
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", k.ID, err)
		}
		if r.signs[k.ID], err = signingKey(k.secret); err != nil {
			return nil, fmt.Errorf("key %s: %w", k.ID, err)
		}
		r.ids, r.keys[k.ID] = append(r.ids, k.ID), gcm
	}
	return r, nil
}

// Parse reads a ring: one key on each line, "ID BASE64", the one that seals first. A comma may stand
// for the end of a line, as it is easier to write in an environment. Empty lines and lines that
// begin with # are skipped. Code: invalid, which names the line and shows nothing of it. Keys of a
// key service are for [Load].
func Parse(text []byte) (*Ring, error) { return Load(context.Background(), text, nil) }

// Current is the id of the key that seals; empty for the nil ring.
func (r *Ring) Current() string {
	if r == nil {
		return ""
	}
	return r.ids[0]
}

// Has reports whether the ring has the key.
func (r *Ring) Has(id string) bool { return r != nil && r.keys[id] != nil }

// IDs lists the ids of the keys, the current one first.
func (r *Ring) IDs() []string {
	if r == nil {
		return nil
	}
	return slices.Clone(r.ids)
}

// String lists the ids.
func (r *Ring) String() string {
	if r == nil {
		return "no keys"
	}
	return strings.Join(r.ids, ", ")
}
