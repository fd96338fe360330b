package slack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/channeltest"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/slack"
	"github.com/sandjet/sandjet/delivery/slack/slacktest"
	"github.com/sandjet/sandjet/schemas"
)

const (
	token  = "xoxb-not-a-real-token/for+tests"
	secret = "8f742231b10e8888abcd99yyyzzz85a5" // of Slack's documentation
)

func to(route string) channel.Destination {
	return channel.Destination{Credential: map[string]string{"bot_token": token, "signing_secret": secret}, Route: json.RawMessage(route)}
}

func harness() channeltest.Harness {
	event := func(s string) string {
		return `{"type":"event_callback","team_id":"T1","event_id":"Ev1","authorizations":[{"user_id":"U0BOT"}],"event":` + s + `}`
	}
	return channeltest.Harness{
		New:   func(o channel.Options) (channel.Adapter, error) { return slack.New(o) },
		Fake:  func() *chatfake.Server { return slacktest.New(slacktest.Options{Token: token}) },
		To:    to(`{"team_id":"T1","channel_id":"C123","thread_ts":"1764000000.000100","message_ts":"1764000000.000100"}`),
		Place: "C123:1764000000.000100",
		Fetched: channeltest.Fetched{File: channel.InboundFile{Name: "a b.txt", Type: "text/plain",
			Ref: "https://files.slack.com/files-pri/T1-F1/download/a%20b.txt"}, Path: "/files-pri/T1-F1/download/a b.txt",
			Guarded: "Authorization", Shown: "Bearer " + token},
		Elsewhere: []json.RawMessage{[]byte(`{"channel_id":"D9X"}`), []byte(`{"channel_id":"G77"}`),
			[]byte(`{"channel_id":"C124","thread_ts":"1764000000.000100"}`)},
		BadRoutes: []json.RawMessage{[]byte(`{"channel_id":"general"}`), []byte(`{"channel_id":"U123"}`), []byte(`{"channel_id":"C1/.."}`),
			[]byte(`{"channel_id":"C123","thread_ts":"yesterday"}`), []byte(`{"channel_id":"C123","message_ts":"1"}`), []byte(`{"channel_id":7}`)},
		Secrets: []string{token, url.QueryEscape(token), secret},
		Sign:    func(body string, now time.Time) channel.Request { return slacktest.Sign(secret, body, now) },
		Stale:   true,
		Lacking: map[string]string{"bot_token": token},
		Refused: map[string]func(*channel.Request){
			"another secret": func(r *channel.Request) { *r = slacktest.Sign(secret+"x", string(r.Body), time.Unix(1_764_000_000, 0)) },
			"another body":   func(r *channel.Request) { r.Body = append(r.Body, ' ') },
			"another time":   func(r *channel.Request) { r.Header.Set("X-Slack-Request-Timestamp", "1764000001") },
			"no number": func(r *channel.Request) {
				r.Header.Set("X-Slack-Request-Timestamp", "now")
			},
			"another version": func(r *channel.Request) {
				r.Header.Set("X-Slack-Signature", strings.Replace(r.Header.Get("X-Slack-Signature"), "v0", "v1", 1))
			},
		},
		Reads: []channeltest.Read{
			{Name: "a mention", Body: event(`{"type":"app_mention","user":"U7","text":"<@U0BOT> is <#C5|general> &lt;ok&gt;? see <https://x.com|x> <@U8>",
				"ts":"1764000000.000100","channel":"C123","event_ts":"1764000000.000100"}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "slack:Ev1", Conversation: "slack:T1:C123:1764000000.000100", Place: "C123",
					User: "U7",
					Text: "is #general <ok>? see x (https://x.com) @U8", Message: "1764000000.000100",
					Route: []byte(`{"team_id":"T1","channel_id":"C123","thread_ts":"1764000000.000100","message_ts":"1764000000.000100"}`)}},
			{Name: "a mention in a thread", Body: event(`{"type":"app_mention","user":"U7","text":"<@U0BOT> /status","ts":"1764000009.000100",
				"thread_ts":"1764000000.000100","channel":"C123"}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "slack:Ev1", Conversation: "slack:T1:C123:1764000000.000100", Place: "C123",
					User: "U7",
					Text: "/status", Message: "1764000009.000100"}},
			{Name: "a chat of two, with a file", Body: event(`{"type":"message","channel_type":"im","subtype":"file_share","user":"U7","text":"see",
				"ts":"1764000000.000100","channel":"D9X","files":[{"id":"F1","name":"a.txt","mimetype":"text/plain","size":3,
				"url_private_download":"https://files.slack.com/a.txt"}]}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "slack:Ev1", Conversation: "slack:T1:D9X", Place: "D9X", User: "U7", Text: "see",
					Message: "1764000000.000100", Files: []channel.InboundFile{{Name: "a.txt", Type: "text/plain", Size: 3,
						Ref: "https://files.slack.com/a.txt"}}}},
			{Name: "a button", Body: "payload=" + url.QueryEscape(`{"type":"block_actions","team":{"id":"T1"},"user":{"id":"U7","username":"an"},
				"channel":{"id":"C123"},"message":{"ts":"1764000005.000200","thread_ts":"1764000000.000100"},"response_url":"https://hooks.slack.com/x",
				"actions":[{"type":"button","action_id":"sandjet.0","value":"y:1","action_ts":"1764000010.1"}]}`),
				Want: channel.Inbound{Kind: channel.Pressed, Event: "slack:T1:C123:1764000005.000200:1764000010.1",
					Conversation: "slack:T1:C123:1764000000.000100", Place: "C123", User: "U7", UserName: "an", Data: "y:1",
					Message: "1764000005.000200"}},
			{Name: "the address is tried", Body: `{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}`,
				Want: channel.Inbound{Kind: channel.Handshake, Answer: channel.Answer{Type: "text/plain",
					Body: []byte("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")}}},
			{Name: "a bot", Body: event(`{"type":"message","channel_type":"im","bot_id":"B1","user":"U9","text":"x","ts":"1764000000.1","channel":"D9X"}`),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "a bot wrote it"}},
			{Name: "an edit", Body: event(`{"type":"message","channel_type":"im","subtype":"message_changed","user":"U7","ts":"1764000000.1","channel":"D9X"}`),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "it is no new message: message_changed"}},
			{Name: "a message to others", Body: event(`{"type":"message","channel_type":"channel","user":"U7","text":"x","ts":"1764000000.1","channel":"C123"}`),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "the app is not spoken to"}},
		},
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, harness())
}

// The example of https://docs.slack.dev/authentication/verifying-requests-from-slack.
func TestTheDocumentedSignature(t *testing.T) {
	t.Parallel()
	a, err := slack.New(channel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("X-Slack-Request-Timestamp", "1531420618")
	h.Set("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503")
	r := channel.Request{Header: h, Body: []byte("token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9" +
		"T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks" +
		".slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c")}
	if err := a.Verify(r, to(""), time.Unix(1531420618+200, 0)); err != nil {
		t.Error(err)
	}
	in, err := a.Read(r, to(""))
	if err != nil || in.Text != "/webhook-collect" || in.UserName != "roadrunner" || in.Conversation != "slack:T1DC2JH3J:G8PSS9T3V" ||
		in.Event != "slack:398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c" {
		t.Errorf("%+v %v", in, err)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	a, _ := open(t, slacktest.Options{})
	for form, want := range map[string]string{
		"command=%2Fsandjet&text=new": "/new", "command=%2Fsandjet&text=%2Frun+ls+-l": "/run ls -l", "command=%2Fask&text=a+b": "/ask a b",
		"command=%2Fsandjet&text=": "/sandjet",
	} {
		in, err := a.Read(channel.Request{Body: []byte(form + "&team_id=T1&channel_id=C123&user_id=U7&trigger_id=1.2")}, to(""))
		if err != nil || in.Text != want {
			t.Errorf("%s: %+v %v", form, in, err)
		}
	}
	for body, kind := range map[string]channel.InboundKind{"ssl_check=1": channel.Handshake, "x=y": channel.Ignored,
		"command=%2Fnew": channel.Ignored, "payload=%7B%22type%22%3A%22view_submission%22%7D": channel.Ignored} {
		if in, err := a.Read(channel.Request{Body: []byte(body)}, to("")); err != nil || in.Kind != kind {
			t.Errorf("%s: %+v %v", body, in, err)
		}
	}
	if _, err := a.Read(channel.Request{Body: []byte("payload=x")}, to("")); schemas.CodeOf(err) != schemas.Invalid {
		t.Error(err)
	}
}

func open(t *testing.T, o slacktest.Options) (*slack.Adapter, *chatfake.Server) {
	t.Helper()
	fake := slacktest.New(o)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	a, err := slack.New(channel.Options{Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return a, fake
}

func TestALookGoesThroughPages(t *testing.T) {
	t.Parallel()
	a, fake := open(t, slacktest.Options{Page: 2})
	d := to(`{"channel_id":"C123"}`)
	m := func(i int) channel.Message { return channel.Message{Key: fmt.Sprintf("k.%d", i), Text: "x"} }
	first, err := a.Send(t.Context(), d, m(0))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if _, err := a.Send(t.Context(), d, m(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	since := time.Now()
	if r, found, err := a.Find(t.Context(), d, "k.0", since); err != nil || !found || r.ID != first.ID {
		t.Errorf("%+v %v %v", r, found, err)
	}
	if _, found, err := a.Find(t.Context(), d, "k.99", since); err != nil || found {
		t.Errorf("%v %v", found, err)
	}
	if _, err := a.Send(t.Context(), d, m(10)); err != nil {
		t.Fatal(err)
	}
	// If the message is not in the pages that Find reads, the outcome is ambiguous.
	if _, found, err := a.Find(t.Context(), d, "k.0", since); channel.OutcomeOf(err) != channel.Ambiguous || found {
		t.Errorf("%v %v", found, err)
	}
	fake.Fail(chatfake.Unauthorized)
	if _, _, err := a.Find(t.Context(), d, "k.0", since); err == nil || channel.OutcomeOf(err) != channel.Ambiguous {
		t.Errorf("what is not allowed to look says nothing of the message: %v", err)
	}
}

func TestWhatSlackRefuses(t *testing.T) {
	t.Parallel()
	a, _ := open(t, slacktest.Options{Token: token, Archived: []string{"C404"}, PerChannel: 1, Per: time.Minute})
	m := channel.Message{Key: "k", Text: "x"}
	for name, c := range map[string]struct {
		to         channel.Destination
		outcome    channel.Outcome
		credential bool
	}{
		"archived":      {to(`{"channel_id":"C404"}`), channel.Refused, false},
		"another token": {channel.Destination{Credential: map[string]string{"bot_token": "xoxb-old"}, Route: []byte(`{"channel_id":"C1X"}`)}, channel.Refused, true},
	} {
		_, err := a.Send(t.Context(), c.to, m)
		e, ok := errors.AsType[*channel.Error](err)
		if !ok || e.Outcome != c.outcome || e.Credential != c.credential {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Send(t.Context(), to(`{"channel_id":"C1X"}`), m); err != nil {
		t.Fatal(err)
	}
	_, err := a.Send(t.Context(), to(`{"channel_id":"C1X"}`), m)
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Limited || e.After < 58*time.Second || e.Of != channel.PerDestination {
		t.Errorf("%v", err)
	}
	for range 2 { // the reaction exists already
		if err := a.React(t.Context(), to(`{"channel_id":"C1X","message_ts":"1.2"}`)); err != nil {
			t.Error(err)
		}
	}
}

func TestAnEditTakesButtonsAway(t *testing.T) {
	t.Parallel()
	a, fake := open(t, slacktest.Options{})
	d := to(`{"channel_id":"C123"}`)
	m := channel.Message{Key: "k", Text: "run it?", Buttons: []channel.Button{{Label: "Yes", Data: "y", Style: channel.Approve}}}
	r, err := a.Send(t.Context(), d, m)
	if err != nil || len(fake.Messages()[0].Press) != 1 {
		t.Fatalf("%v %+v", err, fake.Messages())
	}
	m.Text, m.Buttons = "approved", nil
	if err := a.Edit(t.Context(), d, r.ID, m); err != nil || len(fake.Messages()[0].Press) != 0 || fake.Messages()[0].Text != "approved" {
		t.Errorf("%v %+v", err, fake.Messages())
	}
}

func FuzzRead(f *testing.F) {
	a, err := slack.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range harness().Reads {
		f.Add([]byte(c.Body))
	}
	f.Add([]byte("command=%2Fsandjet&text=new&team_id=T1&channel_id=C123&user_id=U7&trigger_id=1.2"))
	f.Fuzz(func(t *testing.T, body []byte) { channeltest.ReadAny(t, a, channel.Request{Body: body}, to(`{}`)) })
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func FuzzAnswers(f *testing.F) { channeltest.FuzzAnswers(f, harness()) }

func FuzzRoute(f *testing.F) {
	a, err := slack.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"channel_id":"C123","thread_ts":"1764000000.000100"}`))
	f.Fuzz(func(t *testing.T, route []byte) { channeltest.RouteAny(t, a, route) })
}
