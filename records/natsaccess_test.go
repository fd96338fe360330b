package records_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestIssuedPasswordsEndWithTheirTimeAndTheirKey runs in virtual time: hours pass at once.
func TestIssuedPasswordsEndWithTheirTimeAndTheirKey(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		ring, err := seal.NewRing(seal.Generate())
		if err != nil {
			t.Fatal(err)
		}
		s, err := records.Open(ctx, b, ring, recordstest.Providers())
		if err != nil {
			t.Fatal(err)
		}
		const mine, yours schemas.AccountID = "acct_mine", "acct_yours"
		for _, a := range []schemas.AccountID{mine, yours} {
			if _, err := s.Accounts.Ensure(ctx, records.Bootstrap{Account: a, Key: "sk_0123456789_" + string(a), Provider: "local"}); err != nil {
				t.Fatal(err)
			}
		}
		other, err := records.Open(ctx, b, nil, recordstest.Providers()) // of a process without the ring
		if err != nil {
			t.Fatal(err)
		}
		issue := func(ttl time.Duration) string {
			p, expires, err := s.Accounts.IssueNATS(ctx, mine, ttl)
			if err != nil || time.Until(expires) > ttl || time.Until(expires) < ttl-2*time.Second {
				t.Fatalf("until %s: %v", expires, err)
			}
			return p
		}
		in := func(user schemas.AccountID, password string) bool {
			a, until, ok := s.Accounts.AuthenticateNATS(string(user), password)
			if ok && (a != user || !until.IsZero() && !until.After(time.Now())) {
				t.Errorf("%s came in as %s until %s", user, a, until)
			}
			return ok
		}
		key := "sk_0123456789_" + string(mine)
		hour, day := issue(time.Hour), issue(24*time.Hour)
		for name, tc := range map[string]struct {
			user     schemas.AccountID
			password string
			want     bool
		}{
			"the key":                    {mine, key, true},
			"an issued one":              {mine, hour, true},
			"a longer one":               {mine, day, true},
			"the key of another":         {yours, key, false},
			"one issued to another":      {yours, hour, false},
			"nobody with a key":          {"acct_none", key, false},
			"nobody with an issued one":  {"acct_none", hour, false},
			"no user":                    {"", hour, false},
			"no password":                {mine, "", false},
			"the hash of the key":        {mine, records.HashKey(key), false},
			"another end":                {mine, strings.Replace(day, day[4:8], hour[4:8], 1), day[4:8] == hour[4:8]},
			"the end of a longer one":    {mine, day[:strings.IndexByte(day, '.')] + hour[strings.IndexByte(hour, '.'):], false},
			"a part of the signature":    {mine, hour[:len(hour)-4], false},
			"another key of the ring":    {mine, strings.Replace(hour, ring.Current(), "key_other", 1), false},
			"the signature twice":        {mine, hour + hour[len(hour)-4:], false},
			"an issued one in capitals":  {mine, strings.ToUpper(hour), false},
			"the parts without a prefix": {mine, hour[4:], false},
		} {
			if got := in(tc.user, tc.password); got != tc.want {
				t.Errorf("%s: %v", name, got)
			}
		}
		if _, _, ok := other.Accounts.AuthenticateNATS(string(mine), hour); ok {
			t.Error("without the ring an issued one cannot be told")
		}
		if _, _, ok := other.Accounts.AuthenticateNATS(string(mine), key); !ok {
			t.Error("the key works without the ring")
		}
		if _, _, err := other.Accounts.IssueNATS(ctx, mine, time.Hour); !errors.Is(err, schemas.ErrUnsupported) {
			t.Errorf("issued without the ring: %v", err)
		}
		if _, _, err := s.Accounts.IssueNATS(ctx, "acct_none", time.Hour); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("issued to nobody: %v", err)
		}

		time.Sleep(time.Hour)
		if in(mine, hour) || !in(mine, day) {
			t.Error("after an hour the shorter one has ended, and not the longer")
		}
		second, err := s.Accounts.RotateKey(ctx, mine, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, until, ok := s.Accounts.AuthenticateNATS(string(mine), day); !ok || time.Until(until) > 10*time.Minute {
			t.Errorf("one issued under the former key is good until that ends, not until %s (%v)", until, ok)
		}
		if _, until, ok := s.Accounts.AuthenticateNATS(string(mine), key); !ok || time.Until(until) > 10*time.Minute {
			t.Errorf("the former key is good until it ends, not until %s (%v)", until, ok)
		}
		late := issue(time.Hour)
		time.Sleep(10 * time.Minute)
		if in(mine, day) || in(mine, key) || !in(mine, late) || !in(mine, second) {
			t.Error("with the former key ends what was issued under it, and nothing else")
		}
		if _, err := s.Accounts.RotateKey(ctx, mine, 0); err != nil {
			t.Fatal(err)
		}
		if in(mine, late) || in(mine, second) {
			t.Error("a key that is replaced at once takes along what was issued under it")
		}
		last := issue(time.Hour)
		if n, err := s.Accounts.Remove(ctx, mine, 0); err != nil || n != (schemas.RemovedRecords{Sandboxes: 1, Workspaces: 1}) {
			t.Fatalf("%+v went: %v", n, err)
		}
		if in(mine, last) {
			t.Error("an account that is gone has no credentials")
		}
	})
}

// TestAClientWhoseKeysChangedIsNotified: nothing else of an account is, and a new account has no connections yet.
//
//guarantee:tenants-are-isolated
func TestAClientWhoseKeysChangedIsNotified(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		ctx := t.Context()
		s := open(t, b)
		var told []schemas.AccountID
		s.KeysChanged = func(a schemas.AccountID) {
			if _, _, ok := s.Accounts.AuthenticateNATS(string(a), key); ok {
				t.Error("it is told before the copy knows it")
			}
			told = append(told, a)
		}
		d, _, err := s.Accounts.Add(ctx, []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		a := schemas.AccountID(d.ID)
		if _, err := s.Accounts.Patch(ctx, a, []byte(`{"name":"other"}`), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Accounts.Ensure(ctx, records.Bootstrap{Account: "acct_other", Key: key, Provider: "local"}); err != nil {
			t.Fatal(err)
		}
		if len(told) != 0 {
			t.Errorf("told of %v, and no key changed", told)
		}
		for want, change := range []func() error{
			func() error { _, err := s.Accounts.RotateKey(ctx, a, time.Hour); return err },
			func() error { _, err := s.Accounts.RotateKey(ctx, a, 0); return err },
			func() error { _, err := s.Accounts.Remove(ctx, a, 0); return err },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if len(told) != want+1 || told[want] != a {
				t.Errorf("after change %d: %v", want, told)
			}
		}
	})
}
