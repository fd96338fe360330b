package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Headers of a delivery, by Standard Webhooks; the last two are beside it.
const (
	HeaderID        = "webhook-id"        // the delivery's id: the same on every try
	HeaderTimestamp = "webhook-timestamp" // seconds since 1970, of this try
	HeaderSignature = "webhook-signature" // one "v1,<base64>" per secret, with spaces between
	HeaderLegacy    = "X-Webhook-Signature"
	HeaderDelivery  = "webhook-delivery" // of an answer: "abort-message" ends the tries
)

// Tolerance is how old or how far ahead a delivery's timestamp may be for [Verify].
const Tolerance = 5 * time.Minute

const (
	secretPrefix = "whsec_"
	version      = "v1,"
	newSecret    = 32 // bytes
	minSecret    = 24
	maxSecret    = 64
)

// NewSecret returns a fresh signing key.
func NewSecret() string {
	b := make([]byte, newSecret)
	rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// ParseSecret returns the bytes of a signing key. Code: invalid; the error does not show the key.
func ParseSecret(s string) ([]byte, error) {
	text, ok := strings.CutPrefix(s, secretPrefix)
	if !ok {
		return nil, schemas.Invalidf("secret", "does not begin with %s", secretPrefix)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	switch {
	case err != nil || strings.ContainsAny(text, "\r\n"): // the decoder skips line ends, others do not
		return nil, schemas.Invalidf("secret", "what follows %s is not base64 with padding", secretPrefix)
	case len(b) < minSecret || len(b) > maxSecret:
		return nil, schemas.Invalidf("secret", "holds %d bytes: it must be %d to %d", len(b), minSecret, maxSecret)
	}
	return b, nil
}

// Sign returns the headers of a try at a time: a signature by each secret that has not ended, in the
// order given. Code invalid: no secret is left, or one cannot be read; nothing may be sent then.
func Sign(id schemas.DeliveryID, body string, at time.Time, secrets []schemas.EndpointSecret) (http.Header, error) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, s := range inForce(secrets, at) {
		key, err := ParseSecret(s)
		if err != nil {
			return nil, err
		}
		signatures = append(signatures, version+base64.StdEncoding.EncodeToString(mac(key, string(id)+"."+seconds+"."+body)))
	}
	if len(signatures) == 0 {
		return nil, schemas.Invalidf("secrets", "none is in force: rotate the secret of the endpoint")
	}
	h := http.Header{}
	h.Set(HeaderID, string(id))
	h.Set(HeaderTimestamp, seconds)
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	return h, nil
}

// inForce returns the keys that have not expired.
func inForce(secrets []schemas.EndpointSecret, at time.Time) (keys []string) {
	for _, s := range secrets {
		if s.Expires.IsZero() || at.Before(s.Expires) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// signLegacy returns the value of [HeaderLegacy]. Its key is the secret's text including the prefix. It covers neither id nor time, so it
// does not prevent replays of an old delivery.
func signLegacy(secret, body string) string {
	return "sha256=" + hex.EncodeToString(mac([]byte(secret), body))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}

// Verify is for receivers: it returns an error unless a request was signed with one of the secrets, within [Tolerance] of now. Pass the
// body as received, before decoding. Codes: denied, and invalid for an invalid secret or header.
func Verify(h http.Header, body []byte, now time.Time, secrets ...string) error {
	id, at, given := h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	if id == "" || at == "" || given == "" {
		return schemas.Invalidf("headers", "%s, %s and %s must be there", HeaderID, HeaderTimestamp, HeaderSignature)
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return schemas.Invalidf(HeaderTimestamp, "%q is not a number of seconds", schemas.Quotable(at))
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > Tolerance || age < -Tolerance {
		return schemas.OpErrorf(schemas.Denied, "verify",
			"it was signed at another time: the clocks differ by more than %s, or it was recorded and sent again", Tolerance)
	}
	for _, s := range secrets {
		key, err := ParseSecret(s)
		if err != nil {
			return err
		}
		want := mac(key, id+"."+at+"."+string(body))
		for signature := range strings.FieldsSeq(given) {
			text, ok := strings.CutPrefix(signature, version)
			if !ok {
				continue
			}
			if have, err := base64.StdEncoding.DecodeString(text); err == nil && hmac.Equal(have, want) {
				return nil
			}
		}
	}
	return schemas.OpErrorf(schemas.Denied, "verify", "no signature is by a secret that is known")
}
