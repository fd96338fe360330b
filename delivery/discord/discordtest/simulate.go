package discordtest

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Sign returns a request with a body, signed as Discord signs it at a time.
func Sign(key ed25519.PrivateKey, body string, at time.Time) channel.Request {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{"Content-Type": {"application/json"}}
	h.Set("X-Signature-Timestamp", stamp)
	h.Set("X-Signature-Ed25519", hex.EncodeToString(ed25519.Sign(key, []byte(stamp+body))))
	return channel.Request{Header: h, Body: []byte(body)}
}

// Says returns the request of a slash command that a person gives. From now on the double expects its answer.
func (s *Service) Says(guild, place, user, name, text string) channel.Request {
	id := s.id()
	token := tokenOf(place, id)
	s.mu.Lock()
	s.commands[token] = &given{id: id, channel: place, at: s.o.Now()}
	s.mu.Unlock()
	return command(s.o.Key, s.o.Now(), id, token, guild, place, user, name, text, nil)
}

// command returns the signed request of a slash command.
func command(key ed25519.PrivateKey, now time.Time, id, token, guild, place, user, name, text string, files []string) channel.Request {
	options := []any{}
	if text != "" {
		options = append(options, map[string]any{"name": "text", "type": 3, "value": text})
	}
	attached := map[string]any{}
	for i, f := range files {
		number := strconv.Itoa(i + 1)
		options = append(options, map[string]any{"name": "file", "type": 11, "value": number})
		attached[number] = map[string]any{"id": number, "filename": f, "url": "https://cdn.discordapp.com/attachments/1/2/" + url.PathEscape(f)}
	}
	body, err := json.Marshal(map[string]any{"id": id, "application_id": Application, "type": 2, "token": token, "version": 1,
		"guild_id": guild, "channel_id": place, "channel": map[string]any{"id": place, "type": 0},
		"member": map[string]any{"user": map[string]any{"id": user, "username": "somebody"}},
		"data":   map[string]any{"id": "1", "name": name, "type": 1, "options": options, "resolved": map[string]any{"attachments": attached}}})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return Sign(key, string(body), now)
}

// tokenOf returns the token of a command. The token contains the command's channel and id, so that a double also accepts the tokens of
// another process. It contains slashes, and must be escaped in paths.
func tokenOf(place, id string) string { return "interaction-token/" + place + "/" + id }

// learn returns the command of a token that another double created; nil if the token is invalid.
func learn(token string) *given {
	parts := strings.Split(token, "/")
	if len(parts) != 3 || parts[0] != "interaction-token" {
		return nil
	}
	n, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return nil
	}
	return &given{id: parts[2], channel: parts[1], at: time.UnixMilli(n>>22 + epoch)}
}

// Guild is the id of the server in the double for manual use.
const Guild = "41771983423143936"

// fresh returns an id for an event at now. Its lower bits are random, so that ids of the same millisecond or of two processes differ.
func fresh(now time.Time) string {
	return strconv.FormatInt((now.UnixMilli()-epoch)<<22|rand.Int64N(1<<22), 10)
}

// Command returns the request of a slash command that a person gives: the text /status gives the command status, other text the command
// ask.
func (s *Service) Command(guild string, said channel.Said) channel.Request {
	name, rest := "ask", said.Text
	if word, found := strings.CutPrefix(said.Text, "/"); found {
		name, rest, _ = strings.Cut(word, " ")
	}
	now := s.o.Now()
	id := fresh(now)
	return command(s.o.Key, now, id, tokenOf(said.Place, id), guild, said.Place, said.User, name, rest, said.Files)
}

// Press returns the request of a button press by a person. If message is empty, it is the youngest message that has the button.
func (s *Service) Press(guild, place, user, message, data string) channel.Request {
	if message == "" {
		for _, m := range s.Messages() {
			if m.Place == place && slices.ContainsFunc(m.Press, func(b chatfake.Button) bool { return b.Data == data }) {
				message = m.ID
			}
		}
	}
	now := s.o.Now()
	id := fresh(now)
	body, err := json.Marshal(map[string]any{"id": id, "application_id": Application, "type": 3, "token": tokenOf(place, id), "version": 1,
		"guild_id": guild, "channel_id": place, "channel": map[string]any{"id": place, "type": 0},
		"member":  map[string]any{"user": map[string]any{"id": user, "username": "somebody"}},
		"message": map[string]any{"id": message}, "data": map[string]any{"custom_id": data, "component_type": 2}})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return Sign(s.o.Key, string(body), now)
}

// Double returns a double for manual use, with a credential and a channel. Its signing key is public: anyone can sign for it.
func Double() chatfake.Double {
	s := New(Options{})
	const guild, place = Guild, "41771983423143937"
	return chatfake.Double{
		Kind: "discord", Server: s.Server, Place: place, User: "53908232506183680", Route: json.RawMessage(`{"channel_id":"` + place + `"}`),
		Secrets: map[string]string{"bot_token": "a-double-takes-any", "public_key": s.PublicKey()},
		Says: func(secrets map[string]string, place, user, text string) (http.Header, []byte, error) {
			if secrets["public_key"] != s.PublicKey() {
				return nil, nil, errors.New("only Discord can sign for this channel: its public_key is not the double's, " + s.PublicKey())
			}
			r := s.Command(guild, channel.Said{Place: place, User: user, Text: text})
			return r.Header, r.Body, nil
		},
	}
}
