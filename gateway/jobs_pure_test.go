package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/gateway/web"
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

func TestRotatedSecretsEnd(t *testing.T) {
	t.Parallel()
	at := noon.Add
	old := []schemas.EndpointSecret{{Key: "b"}, {Key: "c", Expires: at(time.Hour)}, {Key: "d", Expires: at(-time.Second)}}
	for name, tc := range map[string]struct {
		secrets []schemas.EndpointSecret
		overlap time.Duration
		want    []schemas.EndpointSecret
	}{
		"a day": {old, 24 * time.Hour, []schemas.EndpointSecret{{Key: "a"}, {Key: "b", Expires: at(24 * time.Hour)},
			{Key: "c", Expires: at(time.Hour)}}},
		"a minute": {old, time.Minute, []schemas.EndpointSecret{{Key: "a"}, {Key: "b", Expires: at(time.Minute)},
			{Key: "c", Expires: at(time.Minute)}}},
		"none":      {old, 0, []schemas.EndpointSecret{{Key: "a"}}},
		"the first": {nil, time.Hour, []schemas.EndpointSecret{{Key: "a"}}},
		"one of five": {[]schemas.EndpointSecret{{Key: "b"}, {Key: "c"}, {Key: "d"}, {Key: "e"}}, time.Hour, []schemas.EndpointSecret{{Key: "a"},
			{Key: "b", Expires: at(time.Hour)}, {Key: "c", Expires: at(time.Hour)}, {Key: "d", Expires: at(time.Hour)}}},
	} {
		before := slices.Clone(tc.secrets)
		if got := rotated(tc.secrets, "a", tc.overlap, noon); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		if !slices.Equal(tc.secrets, before) {
			t.Errorf("%s: the former secrets were changed in place", name)
		}
	}
}

func TestOnlyANewSecretIsShown(t *testing.T) {
	t.Parallel()
	e := schemas.Endpoint{Secrets: []schemas.EndpointSecret{{Key: "new"}, {Key: "old"}}}
	if got := shown(e, "new"); got.Secrets[0].Key != "new" || got.Secrets[1].Key != masked {
		t.Errorf("%+v", got)
	}
	if got := shown(e, ""); got.Secrets[0].Key != masked || got.Secrets[1].Key != masked {
		t.Errorf("%+v", got)
	}
	if e.Secrets[0].Key != "new" || e.Secrets[1].Key != "old" {
		t.Errorf("the record itself was changed: %+v", e)
	}
}

func TestEnablingAgainForgetsTheFailures(t *testing.T) {
	t.Parallel()
	no, yes := false, true
	e := schemas.Endpoint{Disabled: true, Reason: "410", FailingSince: noon}
	webhookPatch{Disabled: &yes}.apply(&e, noon)
	if e.Reason != "410" || e.FailingSince.IsZero() {
		t.Errorf("disabled again: %+v", e)
	}
	webhookPatch{Disabled: &no}.apply(&e, noon)
	if e.Disabled || e.Reason != "" || !e.FailingSince.IsZero() || !e.Updated.Equal(noon) {
		t.Errorf("%+v", e)
	}
}

func TestSince(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"2030-01-01T00:00:00Z":           time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		"2030-01-01T01:00:00.25+01:00":   time.Date(2030, 1, 1, 0, 0, 0, 250e6, time.UTC),
		"90m":                            noon.Add(-90 * time.Minute),
		"0s":                             noon,
		"-1h":                            {},
		"yesterday":                      {},
		"30":                             {},
		strings.Repeat("2030-01-01T", 9): {},
	} {
		got, err := replayRequest{Since: text}.since(noon)
		if !got.Equal(want) || (err == nil) == want.IsZero() {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	if at, err := (replayRequest{ID: "msg_1"}).since(noon); err != nil || !at.IsZero() {
		t.Errorf("one delivery: %s, %v", at, err)
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
			checkInvalid(t, err)
			return
		}
		if want, err := jobFilter(q); err != nil {
			checkInvalid(t, err)
		} else {
			want(schemas.Job{})
		}
		if n, err := q.Integer("limit", DefaultJobsPage, 1, MaxJobsPage); err != nil {
			checkInvalid(t, err)
		} else if n < 1 || n > MaxJobsPage {
			t.Fatalf("limit %d", n)
		}
		if n, err := q.Integer("offset", 0, -1, 1<<62); err != nil {
			checkInvalid(t, err)
		} else if n < -1 {
			t.Fatalf("offset %d", n)
		}
		if _, err := q.Flag("follow"); err != nil {
			checkInvalid(t, err)
		}
	})
}

func FuzzDecodeSignal(f *testing.F) {
	f.Add([]byte(`{"signal":"SIGTERM"}`))
	f.Add([]byte(`{"signal":"9"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSignal(b)
		if err != nil {
			checkInvalid(t, err)
		} else if !slices.Contains(schemas.JobSignals(), s) {
			t.Fatalf("signal %q", s)
		}
	})
}

// What is taken as an endpoint's address or secret is good for signing and dialling.
func FuzzWebhookRequest(f *testing.F) {
	f.Add([]byte(`{"url":"https://example.com","events":["message"],"concurrency":2}`))
	f.Add([]byte(`{"url":"http://example.com","secret":"whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var in webhookRequest
		if err := schemas.DecodeStrict(b, schemas.MaxRequest, &in); err != nil {
			checkInvalid(t, err)
			return
		}
		e, err := (&Gateway{}).newEndpoint("acct_a", in, noon)
		if err != nil {
			checkInvalid(t, err)
			if in.Secret != "" && len(in.Secret) > 10 && strings.Contains(err.Error(), in.Secret) {
				t.Fatalf("shows the secret: %v", err)
			}
			return
		}
		if len(e.Secrets) != 1 || checkSecret(e.Secrets[0].Key) != nil || !strings.HasPrefix(strings.ToLower(e.URL), "https://") {
			t.Fatalf("%+v", e)
		}
	})
}

// checkInvalid wants an error that may be shown to the client as it is.
func checkInvalid(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok || e.Code != schemas.Invalid || e.Message == "" {
		t.Fatalf("%v: want an invalid error with a message", err)
	}
	if !utf8.ValidString(e.Message) || !utf8.ValidString(e.Field) || len(e.Error()) > 1024 {
		t.Fatalf("cannot be shown: %q", e.Error())
	}
}
