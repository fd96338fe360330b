package webhooks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/gateway/web/webtest"
	"github.com/sandjet/sandjet/schemas"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

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
	if got := shown(e, "new"); got.Secrets[0].Key != "new" || got.Secrets[1].Key != web.Masked {
		t.Errorf("%+v", got)
	}
	if got := shown(e, ""); got.Secrets[0].Key != web.Masked || got.Secrets[1].Key != web.Masked {
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
	patch{Disabled: &yes}.apply(&e, noon)
	if e.Reason != "410" || e.FailingSince.IsZero() {
		t.Errorf("disabled again: %+v", e)
	}
	patch{Disabled: &no}.apply(&e, noon)
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

// What is taken as an endpoint's address or secret is good for signing and dialling.
func FuzzWebhookRequest(f *testing.F) {
	f.Add([]byte(`{"url":"https://example.com","events":["message"],"concurrency":2}`))
	f.Add([]byte(`{"url":"http://example.com","secret":"whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var in request
		if err := schemas.DecodeStrict(b, schemas.MaxRequest, &in); err != nil {
			webtest.Invalid(t, err)
			return
		}
		e, err := New(Options{}).newEndpoint("acct_a", in, noon)
		if err != nil {
			webtest.Invalid(t, err)
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
