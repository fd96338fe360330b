package e2b

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/gateway/attachtoken"
	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

const (
	tokenPrefix  = "sjbx_"
	tokenPurpose = "token of a sandbox"
	macBytes     = 32
	maxKeyID     = 255
	maxToken     = 2048
)

// claims are the claims of a sandbox's token. The token is valid until its API key is revoked or the sandbox ends.
type claims struct {
	Account schemas.AccountID `json:"a"`
	Sandbox string            `json:"s"`
	Key     []byte            `json:"k"` // the API key's fingerprint
}

// token returns the token with which a client accesses the inside of a sandbox; clients do not send their API key there. Its bytes are the
// length of the signing key's id in one byte, the id, the signature and the claims.
func (f *base) token(a schemas.AccountID, sandbox, key string) (string, error) {
	mark := credentials.Fingerprint(key)
	body, err := json.Marshal(claims{a, sandbox, mark[:]})
	if err != nil {
		return "", schemas.Wrap(schemas.Internal, "token", "it cannot be encoded", err)
	}
	id, mac, err := f.Credentials.Keys.Sign(tokenPurpose, body)
	if err != nil {
		return "", err
	}
	if len(id) > maxKeyID || len(mac) != macBytes {
		return "", schemas.OpErrorf(schemas.Internal, "token", "the key or its signature has another size than is known")
	}
	head := append([]byte{byte(len(id))}, id...)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(slices.Concat(head, mac, body)), nil
}

// open authenticates a request by its token and returns the sandbox that it addresses.
func (f *base) open(r *http.Request) (*box, error) {
	token := r.Header.Get("X-Access-Token")
	if token == "" { // requests about contexts have no other
		token = r.Header.Get("E2b-Traffic-Access-Token")
	}
	c, err := readToken(f.Credentials.Keys, token)
	if err != nil {
		return nil, web.WithStatus(http.StatusUnauthorized, err)
	}
	b := &box{account: c.Account, id: c.Sandbox, key: attachtoken.Fingerprint(c.Key)}
	if !f.Credentials.Good(b.account, b.key) {
		return nil, web.WithStatus(http.StatusUnauthorized, credentials.ErrKeyGone())
	}
	if id := r.Header.Get("E2b-Sandbox-Id"); id != "" && id != b.id {
		return nil, web.WithStatus(http.StatusUnauthorized, badToken())
	}
	return b, nil
}

func badToken() error {
	return schemas.Errorf(schemas.Denied,
		"the header X-Access-Token is not the token of this sandbox: connect to the sandbox again with an API key of its account")
}

// readToken verifies and decodes a token. Code: denied.
func readToken(keys attachtoken.Keys, token string) (c claims, err error) {
	text, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(token) > maxToken || strings.ContainsAny(text, "\r\n") {
		return c, badToken()
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) == 0 {
		return c, badToken()
	}
	id, b := int(b[0]), b[1:]
	if len(b) < id+macBytes || !keys.Verify(string(b[:id]), tokenPurpose, b[id+macBytes:], b[id:id+macBytes]) {
		return c, badToken()
	}
	if json.Unmarshal(b[id+macBytes:], &c) != nil || len(c.Key) != len(attachtoken.Fingerprint{}) { // of a later version
		return c, badToken()
	}
	return c, nil
}
