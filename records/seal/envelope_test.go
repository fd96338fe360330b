package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

func ring(t testing.TB, keys ...seal.Key) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var place = seal.Context{Account: "acct_a", Type: "sandbox", ID: "sb_1", Field: "env_vars"}

func TestWhatIsSealedOpensInItsPlace(t *testing.T) {
	t.Parallel()
	r := ring(t, seal.Generate())
	proptest.Check(t, func(t *rapid.T) {
		plain := rapid.SliceOf(rapid.Byte()).Draw(t, "plain")
		c := seal.Context{
			Account: schemas.AccountID(rapid.String().Draw(t, "account")), Type: rapid.String().Draw(t, "type"),
			ID: rapid.String().Draw(t, "id"), Field: rapid.String().Draw(t, "field"),
		}
		sealed, err := r.Seal(plain, c)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(sealed)
		if err != nil {
			t.Fatal(err)
		}
		var back seal.Sealed
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		got, err := r.Open(back, c)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

//guarantee:secrets-are-not-readable-on-the-log
func TestWhatIsSealedOpensNowhereElse(t *testing.T) {
	t.Parallel()
	k := seal.Generate()
	r := ring(t, k)
	sealed, err := r.Seal([]byte("s3cret"), place)
	if err != nil {
		t.Fatal(err)
	}
	impostor, err := seal.NewKey(k.ID, make([]byte, seal.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	flip := func(b []byte) []byte { c := slices.Clone(b); c[len(c)-1] ^= 1; return c }
	for name, c := range map[string]struct {
		ring   *seal.Ring
		change func(*seal.Sealed)
		place  func(*seal.Context)
		want   *schemas.Error
		words  string
	}{
		"another account":   {place: func(c *seal.Context) { c.Account = "acct_b" }, want: schemas.ErrInternal},
		"another type":      {place: func(c *seal.Context) { c.Type = "endpoint" }, want: schemas.ErrInternal},
		"another id":        {place: func(c *seal.Context) { c.ID = "sb_2" }, want: schemas.ErrInternal},
		"another field":     {place: func(c *seal.Context) { c.Field = "secrets" }, want: schemas.ErrInternal},
		"shifted letters":   {place: func(c *seal.Context) { c.Type, c.ID = "sandbo", "xsb_1" }, want: schemas.ErrInternal},
		"another text":      {change: func(s *seal.Sealed) { s.Ciphertext = flip(s.Ciphertext) }, want: schemas.ErrInternal},
		"another tag":       {change: func(s *seal.Sealed) { s.Tag = flip(s.Tag) }, want: schemas.ErrInternal},
		"another vector":    {change: func(s *seal.Sealed) { s.IV = flip(s.IV) }, want: schemas.ErrInternal},
		"a short vector":    {change: func(s *seal.Sealed) { s.IV = s.IV[:4] }, want: schemas.ErrInternal},
		"a short tag":       {change: func(s *seal.Sealed) { s.Tag = s.Tag[:12] }, want: schemas.ErrInternal},
		"nothing":           {change: func(s *seal.Sealed) { s.IV, s.Tag, s.Ciphertext = nil, nil, nil }, want: schemas.ErrInternal},
		"another algorithm": {change: func(s *seal.Sealed) { s.Algorithm = "ROT13" }, want: schemas.ErrUnavailable, words: "ROT13"},
		"another key":       {ring: ring(t, impostor), want: schemas.ErrInternal},
		"a missing key":     {ring: ring(t, seal.Generate()), want: schemas.ErrUnavailable, words: k.ID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, at, with := sealed, place, r
			if c.change != nil {
				c.change(&s)
			}
			if c.place != nil {
				c.place(&at)
			}
			if c.ring != nil {
				with = c.ring
			}
			plain, err := with.Open(s, at)
			if !errors.Is(err, c.want) || plain != nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q, %v: want %v with %q", plain, err, c.want.Code, c.words)
			}
		})
	}
}

func TestAnOldKeyOpensAndTheFirstSeals(t *testing.T) {
	t.Parallel()
	older, newer := seal.Generate(), seal.Generate()
	was, err := ring(t, older).Seal([]byte("x"), place)
	if err != nil {
		t.Fatal(err)
	}
	both := ring(t, newer, older)
	if plain, err := both.Open(was, place); err != nil || string(plain) != "x" {
		t.Errorf("%q, %v", plain, err)
	}
	if now, err := both.Seal([]byte("x"), place); err != nil || now.Key != newer.ID {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestNoRingSaysHowToGiveOne(t *testing.T) {
	t.Parallel()
	var none *seal.Ring
	sealed, err := ring(t, seal.Generate()).Seal(nil, place)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Open(sealed, place); !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "--secrets-key-file") {
		t.Error(err)
	}
	if _, err := none.Seal(nil, place); !errors.Is(err, schemas.ErrUnsupported) || !strings.Contains(err.Error(), "--secrets-key-file") {
		t.Error(err)
	}
	if none.Current() != "" || none.Has("a") || none.String() != "no keys" {
		t.Error("it has keys")
	}
}

// The form in the log is a contract: other programs may look for it.
func TestTheFormOfAnEnvelope(t *testing.T) {
	t.Parallel()
	k := seal.Generate()
	sealed, err := ring(t, k).Seal([]byte("s3cret"), place)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(sealed)
	if err != nil {
		t.Fatal(err)
	}
	var form map[string]any
	if err := json.Unmarshal(b, &form); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(form)); !slices.Equal(got, []string{"algorithm", "ciphertext", "encrypted", "iv", "key", "tag"}) ||
		form["encrypted"] != true || form["algorithm"] != "AES-256-GCM" || form["key"] != k.ID {
		t.Errorf("%s", b)
	}
	again, err := ring(t, k).Seal([]byte("s3cret"), place)
	if err != nil || bytes.Equal(again.IV, sealed.IV) || bytes.Equal(again.Ciphertext, sealed.Ciphertext) {
		t.Errorf("the same text sealed twice looks the same: %v", err)
	}
}

//guarantee:secrets-are-not-readable-on-the-log
func FuzzOpen(f *testing.F) {
	k := seal.Generate()
	r := ring(f, k)
	good, err := r.Seal([]byte("s3cret"), place)
	if err != nil {
		f.Fatal(err)
	}
	b, err := json.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"encrypted":true,"algorithm":"AES-256-GCM","key":"` + k.ID + `","iv":"","tag":"","ciphertext":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s seal.Sealed
		if json.Unmarshal(b, &s) != nil {
			return
		}
		plain, err := r.Open(s, place)
		if err == nil && string(plain) != "s3cret" {
			t.Errorf("%q was never sealed", plain)
		}
		if err != nil && (plain != nil || schemas.CodeOf(err) != schemas.Internal && schemas.CodeOf(err) != schemas.Unavailable) {
			t.Errorf("%q, %v", plain, err)
		}
	})
}
