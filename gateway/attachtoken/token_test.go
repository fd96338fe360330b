package attachtoken_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
)

// signer has keys with secrets of one repeated byte, the first of which signs.
func signer(t testing.TB, keys ...byte) attachtoken.Signer {
	t.Helper()
	var all []seal.Key
	for _, k := range keys {
		key, err := seal.NewKey(fmt.Sprintf("key_%d", k), bytes.Repeat([]byte{k}, seal.KeyBytes))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key)
	}
	ring, err := seal.NewRing(all...)
	if err != nil {
		t.Fatal(err)
	}
	return attachtoken.Signer{Keys: ring}
}

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }

func sample() attachtoken.Claims {
	return attachtoken.Claims{
		Account: "acct_1", Key: attachtoken.FingerprintOf("hash"), Conversations: []string{"c_1", "support-*"},
		Ops: []attachtoken.Op{attachtoken.Read, attachtoken.Send}, Expires: now().Add(time.Minute).Truncate(time.Second),
	}
}

func TestATokenKeepsWhatItSays(t *testing.T) {
	t.Parallel()
	s := signer(t, 1)
	token, err := s.Sign(sample())
	if err != nil {
		t.Fatal(err)
	}
	if !attachtoken.Is(token) || strings.ContainsFunc(token, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", r)
	}) {
		t.Errorf("%q does not suit a URL or a subprotocol", token)
	}
	if len(token) > 250 {
		t.Errorf("a usual token has %d bytes; want at most 250", len(token))
	}
	got, err := s.Verify(token, now())
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("Verify: %+v, %v; want %+v", got, err, sample())
	}
}

func TestAnEndedTokenIsRefused(t *testing.T) {
	t.Parallel()
	s := signer(t, 1)
	token, err := s.Sign(sample())
	if err != nil {
		t.Fatal(err)
	}
	for at, ok := range map[time.Time]bool{
		sample().Expires.Add(-time.Nanosecond): true, sample().Expires: false, sample().Expires.Add(time.Hour): false,
	} {
		if _, err := s.Verify(token, at); (err == nil) != ok || err != nil && !errors.Is(err, schemas.ErrDenied) {
			t.Errorf("at %s: %v; want ok %v", at, err, ok)
		}
	}
}

func TestAFormerKeyVerifiesUntilItIsTakenAway(t *testing.T) {
	t.Parallel()
	token, err := signer(t, 1).Sign(sample())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signer(t, 2, 1).Verify(token, now()); err != nil {
		t.Errorf("with the key as a former one: %v", err)
	}
	if _, err := signer(t, 2).Verify(token, now()); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("without the key: %v; want denied", err)
	}
}

func TestATokenWithAnyByteChangedIsRefused(t *testing.T) {
	t.Parallel()
	s := signer(t, 1, 2)
	token, err := s.Sign(sample())
	if err != nil {
		t.Fatal(err)
	}
	proptest.Check(t, func(t *rapid.T) {
		b := []byte(token)
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		other := rapid.Byte().Filter(func(c byte) bool { return c != b[at] }).Draw(t, "byte")
		switch rapid.SampledFrom([]string{"replace", "insert", "cut", "append"}).Draw(t, "how") {
		case "replace":
			b[at] = other
		case "insert":
			b = slices.Insert(b, at, other)
		case "cut":
			b = b[:at]
		case "append":
			b = append(b, other)
		}
		if got, err := s.Verify(string(b), now()); !errors.Is(err, schemas.ErrDenied) {
			t.Fatalf("%q: %+v, %v; want denied", b, got, err)
		}
	})
}

func TestATokenAllowsItsOpsOnItsConversations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		patterns []string
		ops      []attachtoken.Op
		op       attachtoken.Op
		conv     schemas.ConversationID
		want     bool
	}{
		"the id itself":                  {[]string{"c_1"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "c_1", true},
		"a longer id":                    {[]string{"c_1"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "c_12", false},
		"a shorter id":                   {[]string{"c_1"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "c_", false},
		"a beginning":                    {[]string{"x", "support-*"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "support-7", true},
		"the beginning alone":            {[]string{"support-*"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "support-", true},
		"another beginning":              {[]string{"support-*"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "sales-7", false},
		"a star in the middle means one": {[]string{"a*b"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "axb", false},
		"all":                            {[]string{"*"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Read, "anything", true},
		"an op that is not there":        {[]string{"*"}, []attachtoken.Op{attachtoken.Read}, attachtoken.Send, "c_1", false},
		"an op beside others": {[]string{"*"}, []attachtoken.Op{attachtoken.Read, attachtoken.Cancel},
			attachtoken.Cancel, "c_1", true},
		"a call without a conversation": {[]string{"c_1"}, []attachtoken.Op{attachtoken.Send}, attachtoken.Send, "", false},
		"the zero token":                {nil, nil, attachtoken.Read, "c_1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tk := attachtoken.Claims{Conversations: c.patterns, Ops: c.ops}
			err := tk.Check(c.op, c.conv)
			if tk.Allows(c.op, c.conv) != c.want || (err == nil) != c.want || err != nil && !errors.Is(err, schemas.ErrDenied) {
				t.Errorf("Allows %v, Check %v; want %v", tk.Allows(c.op, c.conv), err, c.want)
			}
		})
	}
}

func TestATokenThatCannotBeIsRefusedByField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*attachtoken.Claims)
		field  string
	}{
		"as it is":            {func(*attachtoken.Claims) {}, ""},
		"all conversations":   {func(t *attachtoken.Claims) { t.Conversations = []string{"*"} }, ""},
		"a day":               {func(t *attachtoken.Claims) { t.Expires = now().Add(attachtoken.MaxTTL) }, ""},
		"no conversations":    {func(t *attachtoken.Claims) { t.Conversations = nil }, "conversations"},
		"an empty pattern":    {func(t *attachtoken.Claims) { t.Conversations = []string{""} }, "conversations"},
		"a pattern of spaces": {func(t *attachtoken.Claims) { t.Conversations = []string{"a\x00*"} }, "conversations"},
		"too many patterns":   {func(t *attachtoken.Claims) { t.Conversations = slices.Repeat([]string{"c"}, 33) }, "conversations"},
		"too long patterns": {func(t *attachtoken.Claims) { t.Conversations = slices.Repeat([]string{strings.Repeat("c", 200)}, 11) },
			"conversations"},
		"no ops":          {func(t *attachtoken.Claims) { t.Ops = nil }, "ops"},
		"an unknown op":   {func(t *attachtoken.Claims) { t.Ops = []attachtoken.Op{"write"} }, "ops"},
		"an op twice":     {func(t *attachtoken.Claims) { t.Ops = []attachtoken.Op{"read", "read"} }, "ops"},
		"ended":           {func(t *attachtoken.Claims) { t.Expires = now() }, "ttl"},
		"more than a day": {func(t *attachtoken.Claims) { t.Expires = now().Add(attachtoken.MaxTTL + time.Minute) }, "ttl"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tk := sample()
			c.change(&tk)
			err := tk.Validate(now())
			if e, ok := errors.AsType[*schemas.Error](err); c.field == "" && err != nil || c.field != "" &&
				(!ok || e.Code != schemas.Invalid || e.Field != c.field) {
				t.Errorf("Validate: %v; want field %q", err, c.field)
			}
		})
	}
}

func TestTheLargestTokenFits(t *testing.T) {
	t.Parallel()
	tk := sample()
	tk.Account = schemas.AccountID("acct_" + strings.Repeat("a", 64))
	tk.Ops = attachtoken.Ops()
	tk.Conversations = slices.Repeat([]string{strings.Repeat("c", attachtoken.MaxPatternBytes/attachtoken.MaxConversations)},
		attachtoken.MaxConversations)
	if err := tk.Validate(now()); err != nil {
		t.Fatal(err)
	}
	if _, err := signer(t, 1).Sign(tk); err != nil {
		t.Error(err)
	}
}

func TestWithoutAKeyNothingIsSigned(t *testing.T) {
	t.Parallel()
	s := attachtoken.Signer{Keys: (*seal.Ring)(nil)}
	if _, err := s.Sign(sample()); !errors.Is(err, schemas.ErrUnsupported) {
		t.Errorf("Sign: %v; want unsupported", err)
	}
	token, err := signer(t, 1).Sign(sample())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(token, now()); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("Verify: %v; want denied", err)
	}
}

// FuzzVerify: nothing but what was signed verifies, whatever it is.
func FuzzVerify(f *testing.F) {
	s := signer(f, 1, 2)
	token, err := s.Sign(sample())
	if err != nil {
		f.Fatal(err)
	}
	other, err := signer(f, 3).Sign(sample())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", "sjat_", token, other, token[:len(token)-1], token + "\n", token + "="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := s.Verify(text, now())
		if err == nil && text != token {
			t.Fatalf("%q verifies as %+v", text, got)
		}
		if err != nil && !errors.Is(err, schemas.ErrDenied) {
			t.Fatalf("%v is not denied", err)
		}
	})
}
