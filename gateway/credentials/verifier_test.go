package credentials

import (
	"errors"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/schemas"
)

// hashes are the good keys of every account.
type hashes []string

func (hashes) Sign(string, []byte) (key string, signature []byte, err error) { return "", nil, nil }
func (hashes) Verify(string, string, []byte, []byte) bool                    { return false }
func (h hashes) KeyHashes(schemas.AccountID) []string                        { return h }

func TestAnAttachTokenIsLookedAtUntilItOrItsKeyEnds(t *testing.T) {
	t.Parallel()
	now, key := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), attachtoken.FingerprintOf("k")
	for name, c := range map[string]struct {
		keys  hashes
		left  time.Duration
		again time.Duration // 0: it has lapsed
	}{
		"long before its end":       {hashes{"k"}, time.Hour, keyChecked},
		"a minute before":           {hashes{"k"}, time.Minute, 30 * time.Second}, // when the warning is due
		"when the warning is due":   {hashes{"k"}, ExpiringWithin, ExpiringWithin},
		"at its end":                {hashes{"k"}, 0, 0},
		"after a rotation":          {hashes{"new"}, time.Hour, 0},
		"during a rotation's grace": {hashes{"new", "k"}, time.Hour, keyChecked},
		"without its account":       {nil, time.Hour, 0},
	} {
		v := Verifier{Keys: c.keys}
		again, why := v.Lapsed(Principal{"acct_1", key, &attachtoken.Claims{Account: "acct_1", Key: key, Expires: now.Add(c.left)}}, now)
		if again != c.again || (why == nil) != (c.again > 0) || why != nil && !errors.Is(why, schemas.ErrDenied) {
			t.Errorf("%s: again in %s, %v; want %s", name, again, why, c.again)
		}
		if again > time.Minute {
			t.Errorf("%s: looked at after %s; want within a minute", name, again)
		}
	}
}
