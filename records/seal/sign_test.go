package seal_test

import (
	"errors"
	"testing"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

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
