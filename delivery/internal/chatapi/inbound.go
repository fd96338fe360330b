package chatapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// Skew is the maximal difference between the time of a signature and our clock.
const Skew = 5 * time.Minute

// Same reports whether a value of a request equals a secret. Its duration does not depend on the content of either, nor on the secret's
// length.
func Same(shown, secret string) bool {
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(secret))
	return secret != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Forged returns the error for a request that is not from the service. Its text is for people, and must not help a forger. Code: denied.
func Forged(format string, args ...any) error {
	return schemas.Errorf(schemas.Denied, format, args...)
}

// Lacks returns the error for a record that lacks a field of its credential. Code: not_found.
func Lacks(field string) error {
	return schemas.Errorf(schemas.NotFound, "the channel has no %s: set it to take in what the service posts", field)
}

// Fresh returns an error unless a signature's time is close enough to now. Code: denied.
func Fresh(at, now time.Time) error {
	if d := now.Sub(at); d > Skew || d < -Skew {
		return Forged("the request was signed more than %d minutes from now: it is old, or a clock is wrong", int(Skew/time.Minute))
	}
	return nil
}

// Ignore returns an Inbound that is ignored, with the reason.
func Ignore(why string) channel.Inbound { return channel.Inbound{Kind: channel.Ignored, Why: why} }

// Decode reads the body of a request. Code: invalid.
func Decode(body []byte, into any) error {
	if len(body) == 0 || body[0] != '{' {
		return schemas.Invalidf("body", "is not a JSON object")
	}
	if err := json.Unmarshal(body, into); err != nil {
		return schemas.Invalidf("body", "is not what the service posts")
	}
	return nil
}

// DecodeRoute reads a route. Code: invalid.
func DecodeRoute(route json.RawMessage, into any) error {
	if len(route) == 0 || route[0] != '{' {
		return schemas.Invalidf("route", "is not a JSON object")
	}
	if err := json.Unmarshal(route, into); err != nil {
		return schemas.Invalidf("route", "has a field of another type than this channel's routes have")
	}
	return nil
}

// Route encodes a route.
func Route(route any) json.RawMessage {
	text, err := Encode(route)
	if err != nil {
		return nil // routes are structs of strings and numbers
	}
	return text
}
