package slack

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Verify implements [channel.Receiver] as described at https://docs.slack.dev/authentication/verifying-requests-from-slack.
func (a *Adapter) Verify(r channel.Request, to channel.Destination, now time.Time) error {
	secret := to.Credential[signingSecret]
	if secret == "" {
		return chatapi.Lacks(signingSecret)
	}
	stamp := r.Header.Get(timeHeader)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return chatapi.Forged("the request has no time")
	}
	if !chatapi.Same(r.Header.Get(signatureHeader), signature(secret, stamp, r.Body)) {
		return chatapi.Forged("the signature is not of the channel's signing_secret")
	}
	return chatapi.Fresh(time.Unix(seconds, 0), now)
}

// Headers of Slack's requests.
const (
	timeHeader      = "X-Slack-Request-Timestamp"
	signatureHeader = "X-Slack-Signature"
)

// signature returns the signature that Slack sends with a body at the time stamp, in Unix seconds.
func signature(secret, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + stamp + ":"))
	mac.Write(body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// posted is the JSON that Slack posts, with only the fields that are read.
type posted struct {
	Type      string `json:"type"`
	Challenge string `json:"challenge"`
	Team      string `json:"team_id"`
	ID        string `json:"event_id"`
	Event     struct {
		Type    string `json:"type"`
		Subtype string `json:"subtype"`
		Kind    string `json:"channel_type"`
		Channel string `json:"channel"`
		Thread  string `json:"thread_ts"`
		Stamp   string `json:"ts"`
		User    string `json:"user"`
		Bot     string `json:"bot_id"`
		Text    string `json:"text"`
		Files   []file `json:"files"`
	} `json:"event"`
	Authorizations []struct {
		User string `json:"user_id"`
	} `json:"authorizations"`
}

type file struct {
	Name string `json:"name"`
	Type string `json:"mimetype"`
	Size int64  `json:"size"`
	URL  string `json:"url_private_download"`
}

// Read implements [channel.Receiver].
func (a *Adapter) Read(r channel.Request, _ channel.Destination) (channel.Inbound, error) {
	if len(r.Body) > 0 && r.Body[0] != '{' {
		return readForm(r.Body)
	}
	var p posted
	if err := chatapi.Decode(r.Body, &p); err != nil {
		return channel.Inbound{}, err
	}
	switch p.Type {
	case "url_verification":
		return channel.Inbound{Kind: channel.Handshake, Answer: channel.Answer{Type: "text/plain", Body: []byte(p.Challenge)}}, nil
	case "event_callback":
		return p.read(), nil
	default:
		return chatapi.Ignore("it is no event"), nil
	}
}

func (p *posted) read() channel.Inbound {
	e := &p.Event
	direct := e.Kind == "im"
	switch {
	case e.Type != "app_mention" && (e.Type != "message" || !direct):
		return chatapi.Ignore("the app is not spoken to")
	case e.Bot != "" || e.User == "":
		return chatapi.Ignore("a bot wrote it")
	case e.Subtype != "" && e.Subtype != "file_share":
		return chatapi.Ignore("it is no new message: " + e.Subtype)
	case p.ID == "" || p.Team == "" || !isPlace(e.Channel) || !isStamp(e.Stamp) || e.Thread != "" && !isStamp(e.Thread):
		return chatapi.Ignore("it lacks what names it")
	}
	if e.Thread == "" && !direct {
		e.Thread = e.Stamp // a mention in a channel begins a thread
	}
	in := inbound(Route{p.Team, e.Channel, e.Thread, e.Stamp}, e.User)
	in.Kind, in.Event = channel.Text, "slack:"+p.ID
	bot := ""
	if len(p.Authorizations) > 0 {
		bot = p.Authorizations[0].User
	}
	in.Text = spoken(e.Text, bot)
	for _, f := range e.Files {
		if f.URL != "" || f.Name != "" { // a file that the workspace's limits hide has only a name
			in.Files = append(in.Files, channel.InboundFile{Name: cmp.Or(f.Name, "file"), Type: f.Type, Size: max(f.Size, 0), Ref: f.URL})
		}
	}
	if in.Text == "" && len(in.Files) == 0 {
		return chatapi.Ignore("it has neither text nor files")
	}
	return in
}

// inbound returns an Inbound with the fields that all kinds of events have in common.
func inbound(r Route, user string) channel.Inbound {
	in := channel.Inbound{Conversation: "slack:" + r.Team + ":" + r.Channel, Place: r.Channel, User: user, Message: r.Message,
		Route: chatapi.Route(r)}
	if r.Thread != "" {
		in.Conversation += ":" + r.Thread
	}
	return in
}

// readForm reads the requests that Slack posts as a form: button presses and slash commands.
func readForm(body []byte) (channel.Inbound, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return channel.Inbound{}, schemas.Invalidf("body", "is neither JSON nor a form")
	}
	for name, values := range form {
		for i, v := range values {
			form[name][i] = strings.ToValidUTF8(v, "�")
		}
	}
	switch {
	case form.Get("payload") != "":
		return readPress([]byte(form.Get("payload")))
	case form.Get("ssl_check") == "1":
		return channel.Inbound{Kind: channel.Handshake}, nil
	case form.Get("command") != "":
		return readCommand(form), nil
	default:
		return chatapi.Ignore("it is neither a button nor a command"), nil
	}
}

// readPress reads the press of a button.
func readPress(text []byte) (channel.Inbound, error) {
	var p struct {
		Type string `json:"type"`
		Team struct {
			ID string `json:"id"`
		} `json:"team"`
		User struct {
			ID   string `json:"id"`
			Name string `json:"username"`
		} `json:"user"`
		Channel struct {
			ID string `json:"id"`
		} `json:"channel"`
		Message struct {
			Stamp  string `json:"ts"`
			Thread string `json:"thread_ts"`
		} `json:"message"`
		Actions []struct {
			Value string `json:"value"`
			Stamp string `json:"action_ts"`
		} `json:"actions"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return channel.Inbound{}, schemas.Invalidf("payload", "is not a JSON object")
	}
	switch {
	case p.Type != "block_actions" || len(p.Actions) != 1 || p.Actions[0].Value == "":
		return chatapi.Ignore("it is no button of ours"), nil
	case p.Team.ID == "" || p.User.ID == "" || p.Actions[0].Stamp == "" || !isPlace(p.Channel.ID) || !isStamp(p.Message.Stamp),
		p.Message.Thread != "" && !isStamp(p.Message.Thread):
		return chatapi.Ignore("the message with the button is not there any more"), nil
	}
	in := inbound(Route{p.Team.ID, p.Channel.ID, p.Message.Thread, p.Message.Stamp}, p.User.ID)
	in.Kind, in.UserName, in.Data = channel.Pressed, p.User.Name, p.Actions[0].Value
	in.Event = "slack:" + p.Team.ID + ":" + p.Channel.ID + ":" + p.Message.Stamp + ":" + p.Actions[0].Stamp
	return in, nil
}

// ownCommand is the slash command whose first word is the name of one of Sandjet's commands: "/sandjet new" means /new.
const ownCommand = "/sandjet"

// readCommand reads a slash command. A command is not a message in the channel, so it is answered in the channel, outside of threads.
func readCommand(form url.Values) channel.Inbound {
	r := Route{Team: form.Get("team_id"), Channel: form.Get("channel_id")}
	user, id := form.Get("user_id"), form.Get("trigger_id")
	if r.Team == "" || !isPlace(r.Channel) || user == "" || id == "" {
		return chatapi.Ignore("it lacks what names it")
	}
	in := inbound(r, user)
	in.Kind, in.Event, in.UserName = channel.Text, "slack:"+id, form.Get("user_name")
	command, text := form.Get("command"), strings.TrimSpace(form.Get("text"))
	if command == ownCommand && text != "" {
		in.Text = "/" + strings.TrimPrefix(text, "/")
		return in
	}
	in.Text = strings.TrimSpace(command + " " + text)
	return in
}

var reference = regexp.MustCompile(`<([^<>|]*)(?:\|([^<>]*))?>`)

// spoken returns a text as people see it, without a mention of the bot at its beginning: it resolves Slack's references (<…>) and escapes.
func spoken(text, bot string) string {
	text = strings.TrimSpace(text)
	if bot != "" {
		text = strings.TrimSpace(strings.TrimPrefix(text, "<@"+bot+">"))
	}
	text = reference.ReplaceAllStringFunc(text, func(s string) string {
		m := reference.FindStringSubmatch(s)
		to, label := m[1], m[2]
		switch {
		case strings.HasPrefix(to, "#"):
			return "#" + cmp.Or(label, to[1:])
		case strings.HasPrefix(to, "@"):
			return "@" + cmp.Or(label, to[1:])
		case strings.HasPrefix(to, "!"):
			return cmp.Or(label, "@"+to[1:])
		case label == "" || label == to || strings.HasSuffix(to, "//"+label) || to == "mailto:"+label:
			return cmp.Or(label, to)
		default:
			return label + " (" + to + ")"
		}
	})
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(text)
}
