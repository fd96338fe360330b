package github

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Verify implements [channel.Receiver] as described at https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries. A
// delivery carries no time; a repeated delivery is recognized by its id.
func (a *Adapter) Verify(r channel.Request, to channel.Destination, _ time.Time) error {
	secret := to.Credential[webhookSecret]
	if secret == "" {
		return chatapi.Lacks(webhookSecret)
	}
	if !chatapi.Same(r.Header.Get(signatureHeader), signature(secret, r.Body)) {
		return chatapi.Forged("the signature is not of the channel's webhook_secret")
	}
	return nil
}

const signatureHeader = "X-Hub-Signature-256"

// signature returns the signature that GitHub sends with a body.
func signature(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// posted is the JSON that GitHub posts, with only the fields that are read.
type posted struct {
	Action string `json:"action"`
	Issue  *item  `json:"issue"`
	Pull   *item  `json:"pull_request"`
	Note   *struct {
		ID    int64  `json:"id"`
		Body  string `json:"body"`
		First int64  `json:"in_reply_to_id"`
	} `json:"comment"`
	Repo struct {
		Name string `json:"full_name"`
	} `json:"repository"`
	Installation struct {
		ID int64 `json:"id"`
	} `json:"installation"`
	Sender struct {
		Login string `json:"login"`
		Type  string `json:"type"`
	} `json:"sender"`
}

type item struct {
	Number int64     `json:"number"`
	Title  string    `json:"title"`
	Body   string    `json:"body"`
	Pull   *struct{} `json:"pull_request"`
}

// Read implements [channel.Receiver]. If the setting mention (@name) is set, only texts that contain it are read; it is removed from the
// beginning of a text.
func (a *Adapter) Read(r channel.Request, to channel.Destination) (channel.Inbound, error) {
	var p posted
	if err := chatapi.Decode(r.Body, &p); err != nil {
		return channel.Inbound{}, err
	}
	event := r.Header.Get("X-GitHub-Event")
	if event == "ping" {
		return channel.Inbound{Kind: channel.Handshake}, nil
	}
	what, kind := p.Issue, "issue"
	if what == nil || what.Pull != nil {
		kind = "pr"
	}
	if what == nil {
		what = p.Pull
	}
	route := Route{Repo: p.Repo.Name, Installation: max(p.Installation.ID, 0)}
	var text, message string
	switch {
	case what == nil || !taken(event, p.Action):
		return chatapi.Ignore("it is nothing that people say: " + event + " " + p.Action), nil
	case p.Note != nil && p.Note.ID > 0:
		text, message, route.Comment = p.Note.Body, strconv.FormatInt(p.Note.ID, 10), p.Note.ID
		if event == "pull_request_review_comment" {
			route.Review = p.Note.ID
			if p.Note.First > 0 {
				route.Review = p.Note.First
			}
		}
	case p.Note != nil || strings.Contains(event, "comment"):
		return chatapi.Ignore("it lacks what names it"), nil
	default:
		text, message = strings.TrimSpace(what.Title+"\n\n"+what.Body), strconv.FormatInt(what.Number, 10)
	}
	route.Number = what.Number
	delivery := strings.ToValidUTF8(r.Header.Get("X-GitHub-Delivery"), "")
	switch {
	case p.Sender.Type == "Bot" || strings.HasSuffix(p.Sender.Login, "[bot]"):
		return chatapi.Ignore("a bot wrote it"), nil
	case strings.Contains(text, "<!-- sandjet:"):
		return chatapi.Ignore("we wrote it"), nil
	case delivery == "" || p.Sender.Login == "" || !isRepo(route.Repo) || route.Number < 1:
		return chatapi.Ignore("it lacks what names it"), nil
	}
	text, named := spokenTo(text, to.Settings["mention"])
	if !named {
		return chatapi.Ignore("the app is not spoken to"), nil
	}
	return channel.Inbound{
		Kind: channel.Text, Event: "gh:" + delivery, Conversation: "gh:" + route.Repo + ":" + kind + ":" + strconv.FormatInt(route.Number, 10),
		Place: route.Repo, User: p.Sender.Login, UserName: p.Sender.Login, Text: text, Files: filesOf(text), Message: message,
		Route: chatapi.Route(route),
	}, nil
}

// taken reports whether an event means that a person has written or edited something.
func taken(event, action string) bool {
	switch event + " " + action {
	case "issues opened", "issues reopened", "issues edited", "issue_comment created", "issue_comment edited",
		"pull_request opened", "pull_request reopened", "pull_request edited",
		"pull_request_review_comment created", "pull_request_review_comment edited":
		return true
	}
	return false
}

// spokenTo reports whether a text mentions name, and returns the text, without the mention if it begins with one. An empty name is always
// mentioned.
func spokenTo(text, name string) (string, bool) {
	text = strings.TrimSpace(text)
	name = strings.TrimPrefix(name, "@")
	if name == "" {
		return text, true
	}
	at := "@" + strings.ToLower(name)
	lower := strings.ToLower(text)
	if rest, begins := strings.CutPrefix(lower, at); begins && len(lower) == len(text) && !strings.HasPrefix(rest, "-") {
		return strings.TrimSpace(text[len(at):]), true
	}
	return text, strings.Contains(lower, at)
}
