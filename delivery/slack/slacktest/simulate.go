package slacktest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
)

// Sign returns a request with a body, JSON or a form, signed as Slack signs it at a time for an app with a signing secret.
func Sign(secret, body string, at time.Time) channel.Request {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + stamp + ":" + body))
	kind := "application/json"
	if !strings.HasPrefix(body, "{") {
		kind = "application/x-www-form-urlencoded"
	}
	h := http.Header{"Content-Type": {kind}}
	h.Set("X-Slack-Request-Timestamp", stamp)
	h.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	return channel.Request{Header: h, Body: []byte(body)}
}

// Says returns the request that Slack posts when a person writes to the app: a direct message, or a mention in a channel. The number is
// part of the event's id, and must be unique.
func Says(secret string, number int, place, user, text string, at time.Time) channel.Request {
	event := map[string]any{"type": "message", "channel_type": "im"}
	if !strings.HasPrefix(place, "D") {
		event = map[string]any{"type": "app_mention"}
		text = "<@U0BOT> " + text
	}
	event["channel"], event["user"], event["text"] = place, user, text
	event["ts"] = strconv.FormatInt(at.Unix(), 10) + "." + strconv.Itoa(100_000+number%900_000)
	body, err := json.Marshal(map[string]any{"type": "event_callback", "team_id": "T0001", "event_id": "Ev" + strconv.Itoa(number),
		"event": event, "authorizations": []any{map[string]any{"user_id": "U0BOT", "is_bot": true}}})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return Sign(secret, string(body), at)
}
