package github

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

const (
	jwtLife = 9 * time.Minute // GitHub accepts ten
	jwtPast = time.Minute     // by how much our clock may be ahead of GitHub's
	spare   = 5 * time.Minute // a token is used only if it is valid for longer
	maxKept = 1000            // tokens
)

// tokens caches the tokens of installations, which are valid for an hour. A lost entry costs one request.
type tokens struct {
	mu   sync.Mutex
	kept map[tokenKey]token
}

// tokenKey identifies a cached token. It contains a hash of the app's private key, so that only channels that have the key get the token.
type tokenKey struct {
	app          string
	installation int64
	key          [sha256.Size]byte
}

type token struct {
	value string
	ends  time.Time
}

func (t *tokens) get(k tokenKey, now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.kept[k]; now.Add(spare).Before(have.ends) {
		return have.value
	}
	return ""
}

func (t *tokens) put(k tokenKey, v token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept == nil || len(t.kept) >= maxKept {
		t.kept = map[tokenKey]token{}
	}
	t.kept[k] = v
}

// drop removes a token that GitHub did not accept.
func (t *tokens) drop(k tokenKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.kept, k)
}

func keyOf(to channel.Destination, installation int64) tokenKey {
	return tokenKey{to.Credential[appID], installation, sha256.Sum256([]byte(to.Credential[privateKey]))}
}

// bearer returns the token for a request: the channel's access token, or a token of the route's installation, which is requested from
// GitHub unless it is cached. The outcome of its errors is never ambiguous.
func (a *Adapter) bearer(ctx context.Context, to channel.Destination, r Route) (string, *channel.Error) {
	switch {
	case to.Credential[accessToken] != "":
		return to.Credential[accessToken], nil
	case to.Credential[appID] == "" || to.Credential[privateKey] == "":
		return "", &channel.Error{Outcome: channel.Refused, Credential: true,
			Reason: "the channel has neither a token nor app_id and private_key"}
	case r.Installation == 0:
		return "", chatapi.Refuse("the route has no installation_id, which an app needs")
	}
	k := keyOf(to, r.Installation)
	if have := a.tokens.get(k, a.api.Now()); have != "" {
		return have, nil
	}
	jwt, failed := a.jwt(to)
	if failed != nil {
		return "", failed
	}
	var got struct {
		Token string    `json:"token"`
		Ends  time.Time `json:"expires_at"`
	}
	_, err := a.do(ctx, to, jwt, chatapi.Call{Method: http.MethodPost,
		Path: "/app/installations/" + strconv.FormatInt(r.Installation, 10) + "/access_tokens", Into: &got})
	if err != nil {
		return "", notSent(err)
	}
	if got.Token == "" {
		return "", &channel.Error{Outcome: channel.NotSent, Reason: "GitHub gave the app no token"}
	}
	a.tokens.put(k, token{got.Token, got.Ends})
	return got.Token, nil
}

// jwt returns a JSON web token that authenticates the app for jwtLife.
func (a *Adapter) jwt(to channel.Destination) (string, *channel.Error) {
	bad := func(why string) *channel.Error {
		return &channel.Error{Outcome: channel.Refused, Credential: true, Reason: "the channel's private_key " + why}
	}
	block, _ := pem.Decode([]byte(to.Credential[privateKey]))
	if block == nil {
		return "", bad("is not the text of a PEM file")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		any8, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		rsaKey, ok := any8.(*rsa.PrivateKey)
		if err != nil || !ok {
			return "", bad("is no RSA key")
		}
		key = rsaKey
	}
	now := a.api.Now()
	claims, err := json.Marshal(map[string]any{"iat": now.Add(-jwtPast).Unix(), "exp": now.Add(jwtLife).Unix(), "iss": to.Credential[appID]})
	if err != nil {
		return "", bad("cannot be used")
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", bad(fmt.Sprintf("has %d bits, which is too few", key.N.BitLen()))
	}
	return text + "." + enc.EncodeToString(signature), nil
}
