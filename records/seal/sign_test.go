package seal_test

import (
	"errors"
	"testing"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

//guarantee:a-box-does-not-have-the-values-that-are-bound-to-hosts
func TestDerivedSecrets(t *testing.T) {
	t.Parallel()
	old, now := seal.Generate(), seal.Generate()
	before, err1 := seal.NewRing(old)
	after, err2 := seal.NewRing(now, old)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	derive := func(r *seal.Ring, id, purpose, text string) string {
		t.Helper()
		key, secret, err := r.Derive(id, purpose, []byte(text))
		if err != nil || id != "" && key != id || len(secret) != 32 {
			t.Fatalf("%q of %d bytes, %v", key, len(secret), err)
		}
		return string(secret)
	}
	first := derive(before, "", "relay", "text")
	if derive(after, old.ID, "relay", "text") != first {
		t.Error("another process with the key derives something else")
	}
	_, signature, err := before.Sign("relay", []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	for what, other := range map[string]string{
		"another text": derive(before, "", "relay", "texts"), "another purpose": derive(before, "", "re", "laytext"),
		"another key": derive(after, "", "relay", "text"), "a signature": string(signature),
	} {
		if other == first {
			t.Errorf("%s gives the same secret", what)
		}
	}
	if _, _, err := before.Derive(now.ID, "relay", nil); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
	if _, _, err := (*seal.Ring)(nil).Derive("", "relay", nil); schemas.CodeOf(err) != schemas.Unsupported {
		t.Errorf("no key at all: %v", err)
	}
}

func TestASignatureHoldsForItsMessagePurposeAndKeyAlone(t *testing.T) {
	t.Parallel()
	old, now := seal.Generate(), seal.Generate()
	before, err := seal.NewRing(old)
	if err != nil {
		t.Fatal(err)
	}
	after, err := seal.NewRing(now, old)
	if err != nil {
		t.Fatal(err)
	}
	key, signature, err := before.Sign("tickets", []byte("message"))
	if err != nil || key != old.ID {
		t.Fatalf("signed with %q: %v", key, err)
	}
	changed := append([]byte(nil), signature...)
	changed[len(changed)-1] ^= 1
	for name, tc := range map[string]struct {
		ring                  *seal.Ring
		key, purpose, message string
		signature             []byte
		want                  bool
	}{
		"as it was made":                {before, key, "tickets", "message", signature, true},
		"a former key of the ring":      {after, key, "tickets", "message", signature, true},
		"another message":               {before, key, "tickets", "messages", signature, false},
		"another purpose":               {before, key, "ticket", "smessage", signature, false},
		"another key":                   {after, now.ID, "tickets", "message", signature, false},
		"a key that is not there":       {before, now.ID, "tickets", "message", signature, false},
		"a bit of the signature":        {before, key, "tickets", "message", changed, false},
		"a part of the signature":       {before, key, "tickets", "message", signature[:8], false},
		"no signature":                  {before, key, "tickets", "message", nil, false},
		"a ring without keys":           {nil, key, "tickets", "message", signature, false},
		"no key's id and no signature":  {before, "", "tickets", "message", nil, false},
		"no key's id with a real tag":   {before, "", "tickets", "message", signature, false},
		"a ring without keys, no tag":   {nil, "", "", "", nil, false},
		"an empty message, as was told": {before, key, "tickets", "", signature, false},
	} {
		if got := tc.ring.Verify(tc.key, tc.purpose, []byte(tc.message), tc.signature); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if _, _, err := (*seal.Ring)(nil).Sign("tickets", nil); !errors.Is(err, schemas.ErrUnsupported) {
		t.Errorf("without keys: %v", err)
	}
}
