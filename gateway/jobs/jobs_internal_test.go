package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/gateway/web/webtest"
	"github.com/sandjet/sandjet/schemas"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func TestTokensOpenTheirJobForALimitedTime(t *testing.T) {
	t.Parallel()
	const token = "acct_a.secret"
	sum := sha256.Sum256([]byte(token))
	hash := hex.EncodeToString(sum[:])
	for name, tc := range map[string]struct {
		hash, token string
		deadline    time.Time
		want        bool
	}{
		"good":               {hash, token, noon.Add(time.Second), true},
		"within the grace":   {hash, token, noon.Add(-59 * time.Minute), true},
		"after the grace":    {hash, token, noon.Add(-time.Hour), false},
		"wrong":              {hash, "acct_a.other", noon.Add(time.Hour), false},
		"the hash":           {hash, hash, noon.Add(time.Hour), false},
		"no hash":            {"", token, noon.Add(time.Hour), false},
		"no hash, no token":  {"", "", noon.Add(time.Hour), false},
		"half a hash":        {hash[:32], token, noon.Add(time.Hour), false},
		"no deadline at all": {hash, token, time.Time{}, false},
	} {
		if got := opens(tc.token, schemas.Job{TokenHash: tc.hash, Deadline: tc.deadline}, noon); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Pages of any size, put together, are the log, byte by byte, and text comes as text.
func FuzzLogPages(f *testing.F) {
	f.Add([]byte("one\ntwo \u00fc \u20ac \U0001f600"), 3)
	f.Add([]byte("\xff\xfe\x80"), 1)
	f.Add([]byte("\xf0\x9f\x98"), 4)
	f.Fuzz(func(t *testing.T, log []byte, limit int) {
		if limit < 1 || len(log) > 1<<12 {
			return
		}
		var got []byte
		for offset := int64(0); offset < int64(len(log)); {
			r := schemas.JobReply{Offset: offset, Size: int64(len(log)), Ended: true}
			r.Data = log[offset:min(int64(limit)+offset, r.Size)]
			p := logPage(r)
			switch {
			case p.Next <= offset:
				t.Fatalf("a page at %d ends at %d", offset, p.Next)
			case p.Text != "" && p.Data != nil, p.Data != nil && utf8.Valid(log) && limit >= utf8.UTFMax:
				t.Fatalf("%q: text %q, data %q", log, p.Text, p.Data)
			}
			got, offset = append(append(got, p.Text...), p.Data...), p.Next
		}
		if string(got) != string(log) {
			t.Fatalf("%q became %q", log, got)
		}
	})
}

func FuzzJobQuery(f *testing.F) {
	f.Add("state=running&conversation=c_1&limit=5")
	f.Add("state=%ff&offset=-1&follow=1")
	f.Add("offset=9223372036854775808&limit=262145")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := web.ParseQuery(raw, "state", "conversation", "limit", "offset", "follow")
		if err != nil {
			webtest.Invalid(t, err)
			return
		}
		if want, err := filter(q); err != nil {
			webtest.Invalid(t, err)
		} else {
			want(schemas.Job{})
		}
		if n, err := q.Integer("limit", DefaultPage, 1, MaxPage); err != nil {
			webtest.Invalid(t, err)
		} else if n < 1 || n > MaxPage {
			t.Fatalf("limit %d", n)
		}
		if n, err := q.Integer("offset", 0, -1, 1<<62); err != nil {
			webtest.Invalid(t, err)
		} else if n < -1 {
			t.Fatalf("offset %d", n)
		}
		if _, err := q.Flag("follow"); err != nil {
			webtest.Invalid(t, err)
		}
	})
}

func FuzzDecodeSignal(f *testing.F) {
	f.Add([]byte(`{"signal":"SIGTERM"}`))
	f.Add([]byte(`{"signal":"9"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSignal(b)
		if err != nil {
			webtest.Invalid(t, err)
		} else if !slices.Contains(schemas.JobSignals(), s) {
			t.Fatalf("signal %q", s)
		}
	})
}
