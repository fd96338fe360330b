package webhook

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sandjet/sandjet/schemas"
)

const body = `{"type":"job.finished","data":{"text":"dòng chữ"}}`

//guarantee:a-webhook-is-delivered-at-least-once-under-one-id
func TestThePublicLibraryVerifiesWhatWeSign(t *testing.T) {
	t.Parallel()
	old, fresh, over := NewSecret(), NewSecret(), NewSecret()
	now := time.Now()
	h, err := Sign("msg_1", body, now, []schemas.EndpointSecret{{Key: fresh},
		{Key: old, Expires: now.Add(time.Hour)}, {Key: over, Expires: now}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, secret, body string
		want               bool
	}{
		{"the newest secret", fresh, body, true},
		{"one that ends soon", old, body, true},
		{"one that has ended", over, body, false},
		{"another", NewSecret(), body, false},
		{"another body", fresh, body + " ", false},
	} {
		library, err := standardwebhooks.NewWebhook(c.secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := library.Verify([]byte(c.body), h); (err == nil) != c.want {
			t.Errorf("the library on %s: %v", c.name, err)
		}
		if err := Verify(h, []byte(c.body), now, c.secret); (err == nil) != c.want || err != nil && !errors.Is(err, schemas.ErrDenied) {
			t.Errorf("Verify on %s: %v", c.name, err)
		}
	}
	if n := len(strings.Fields(h.Get(HeaderSignature))); n != 2 {
		t.Errorf("%d signatures, want one for each secret in force", n)
	}
}

func TestVerifyKnowsWhatThePublicLibrarySigns(t *testing.T) {
	t.Parallel()
	secret, now := NewSecret(), time.Now()
	library, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := library.Sign("msg_1", now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set(HeaderID, "msg_1")
	h.Set(HeaderTimestamp, "17951760000")
	h.Set(HeaderSignature, "v1a,AAAA "+signature)
	if err := Verify(h, []byte(body), now, secret); !errors.Is(err, schemas.ErrDenied) {
		t.Errorf("signed at another time: %v, want denied", err)
	}
	fresh, err := Sign("msg_1", body, now, []schemas.EndpointSecret{{Key: secret}})
	if err != nil || fresh.Get(HeaderSignature) != signature {
		t.Fatalf("we sign %q, %v; the library %q", fresh.Get(HeaderSignature), err, signature)
	}
	h.Set(HeaderTimestamp, fresh.Get(HeaderTimestamp))
	if err := Verify(h, []byte(body), now, NewSecret(), secret); err != nil {
		t.Error(err)
	}
	h.Set(HeaderTimestamp, "soon")
	if err := Verify(h, []byte(body), now, secret); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("no timestamp: %v, want invalid", err)
	}
	if err := Verify(http.Header{}, []byte(body), now, secret); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("no headers: %v, want invalid", err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, c := range []struct {
		name, secret string
		want         int
	}{
		{"one of ours", NewSecret(), 32},
		{"the shortest", "whsec_" + encode(24), 24},
		{"the longest", "whsec_" + encode(64), 64},
		{"too short", "whsec_" + encode(23), 0},
		{"too long", "whsec_" + encode(65), 0},
		{"without its prefix", encode(32), 0},
		{"not base64", "whsec_" + strings.Repeat("~", 44), 0},
		{"without padding", "whsec_" + strings.TrimRight(encode(32), "="), 0},
		{"nothing", "", 0},
	} {
		b, err := ParseSecret(c.secret)
		if len(b) != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%s: %d bytes, %v; want %d", c.name, len(b), err, c.want)
		}
		if err != nil && c.secret != "" && strings.Contains(err.Error(), c.secret) {
			t.Errorf("%s: the error shows the secret: %v", c.name, err)
		}
	}
	if one, other := NewSecret(), NewSecret(); one == other {
		t.Error("two secrets are one")
	}
}

func TestNothingIsSentWithoutASignature(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]schemas.EndpointSecret{nil, {{Key: NewSecret(), Expires: time.Now().Add(-time.Hour)}}, {{Key: "secret"}}} {
		if h, err := Sign("msg_1", body, time.Now(), secrets); !errors.Is(err, schemas.ErrInvalid) || h != nil {
			t.Errorf("with %d secrets: %v, %v", len(secrets), h, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	secret := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq="
	f.Add("msg_1", "1795176000", "v1,AAAA", body)
	f.Add("", "-1", "v1 v1, ,", "")
	f.Fuzz(func(t *testing.T, id, at, signature, body string) {
		h := http.Header{}
		for name, value := range map[string]string{HeaderID: id, HeaderTimestamp: at, HeaderSignature: signature} {
			h.Set(name, value)
		}
		if err := Verify(h, []byte(body), time.Unix(1795176000, 0), secret); err == nil {
			t.Fatalf("%q %q %q verifies", id, at, signature)
		}
	})
}

func FuzzParseSecret(f *testing.F) {
	f.Add(NewSecret())
	f.Add("whsec_")
	f.Add("whsec_000000000000000000000\r00000000000")
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := ParseSecret(s); err == nil && "whsec_"+base64.StdEncoding.EncodeToString(b) != s {
			t.Fatalf("%q is taken for %d bytes", s, len(b))
		}
	})
}
