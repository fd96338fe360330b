package githubtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/sandjet/sandjet/delivery/channel"
)

// Sign returns a request with an event, signed as GitHub signs it for a webhook with a secret.
func Sign(secret, event, delivery, body string) channel.Request {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	h := http.Header{"Content-Type": {"application/json"}}
	h.Set("X-GitHub-Event", event)
	h.Set("X-GitHub-Delivery", delivery)
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return channel.Request{Header: h, Body: []byte(body)}
}

// Says returns the event that GitHub posts when a person comments on an issue. The number becomes the comment's id, and must be unique.
func Says(secret, repo string, issue, number int64, user, text string) channel.Request {
	body, err := json.Marshal(map[string]any{"action": "created",
		"issue": map[string]any{"number": issue, "title": "Hello"}, "comment": map[string]any{"id": number, "body": text},
		"repository": map[string]any{"full_name": repo}, "sender": map[string]any{"login": user, "type": "User"}})
	if err != nil {
		panic(err) // strings and numbers can always be encoded
	}
	sum := sha256.Sum256(body)
	return Sign(secret, "issue_comment", hex.EncodeToString(sum[:16]), string(body))
}
