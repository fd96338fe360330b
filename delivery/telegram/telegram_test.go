package telegram_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/channeltest"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/telegram"
	"github.com/sandjet/sandjet/delivery/telegram/telegramtest"
)

const (
	token  = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
	secret = "s3cret_of-the-hook"
)

func to(route string) channel.Destination {
	return channel.Destination{Credential: map[string]string{"bot_token": token, "secret_token": secret}, Route: json.RawMessage(route)}
}

func harness() channeltest.Harness {
	routed := json.RawMessage(`{"chat_id":-1001234567890,"thread_id":42,"message_id":1365}`)
	return channeltest.Harness{
		New:     func(o channel.Options) (channel.Adapter, error) { return telegram.New(o) },
		Fake:    func() *chatfake.Server { return telegramtest.New(telegramtest.Options{Token: token}) },
		To:      to(`{"chat_id":-1001234567890,"thread_id":42,"message_id":1365}`),
		Place:   "-1001234567890:42",
		Fetched: channeltest.Fetched{File: channel.InboundFile{Name: "a.pdf", Ref: "AgAC-1_x"}, Path: telegramtest.PathOf(token, "AgAC-1_x")},
		Elsewhere: []json.RawMessage{[]byte(`{"chat_id":7}`), []byte(`{"chat_id":"@news_of_us"}`),
			[]byte(`{"chat_id":-7}`)},
		BadRoutes: []json.RawMessage{[]byte(`{"chat_id":"news"}`), []byte(`{"chat_id":0}`), []byte(`{"chat_id":1.5}`),
			[]byte(`{"chat_id":7,"thread_id":-1}`), []byte(`{"chat_id":"@a/../b"}`), []byte(`{"chat_id":[7]}`)},
		Secrets: []string{token, "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", secret},
		Sign:    func(body string, _ time.Time) channel.Request { return telegramtest.Update(secret, body) },
		Lacking: map[string]string{"bot_token": token},
		Refused: map[string]func(*channel.Request){
			"another secret": func(r *channel.Request) { r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret+"x") },
			"the bot's token": func(r *channel.Request) {
				r.Header.Set("X-Telegram-Bot-Api-Secret-Token", token)
			},
		},
		Reads: []channeltest.Read{
			{Name: "text", Body: `{"update_id":10000,"message":{"date":1441645532,"chat":{"last_name":"Test Lastname","id":1111111,"type":"private",
				"first_name":"Test Firstname","username":"Testusername"},"message_id":1365,"from":{"last_name":"Test Lastname","id":1111111,
				"first_name":"Test Firstname","username":"Testusername"},"text":"/start"}}`,
				Want: channel.Inbound{Kind: channel.Text, Event: "tg:10000", Conversation: "tg:1111111", Place: "1111111", User: "1111111",
					UserName: "Testusername", Text: "/start", Message: "1365", Route: []byte(`{"chat_id":1111111,"message_id":1365}`)}},
			{Name: "a topic of a forum", Body: `{"update_id":7,"message":{"message_id":1365,"message_thread_id":42,"is_topic_message":true,
				"from":{"id":5,"is_bot":false,"first_name":"An","last_name":"Vo"},"chat":{"id":-1001234567890,"type":"supergroup","is_forum":true},
				"date":1,"text":"/new@sandjet_bot now"}}`,
				Want: channel.Inbound{Kind: channel.Text, Event: "tg:7", Conversation: "tg:-1001234567890:42", Place: "-1001234567890", User: "5",
					UserName: "An Vo", Text: "/new now", Message: "1365", Route: routed}},
			{Name: "an answer in a group without topics", Body: `{"update_id":8,"message":{"message_id":3,"message_thread_id":2,
				"from":{"id":5,"first_name":"An"},"chat":{"id":-9},"date":1,"text":"so"}}`,
				Want: channel.Inbound{Kind: channel.Text, Event: "tg:8", Conversation: "tg:-9", Place: "-9", User: "5", UserName: "An", Text: "so",
					Message: "3", Route: []byte(`{"chat_id":-9,"message_id":3}`)}},
			{Name: "files", Body: `{"update_id":9,"message":{"message_id":4,"from":{"id":5,"first_name":"An"},"chat":{"id":5},"date":1,"caption":"see",
				"document":{"file_id":"D1","file_name":"a.txt","mime_type":"text/plain","file_size":12},
				"photo":[{"file_id":"P1","file_size":1},{"file_id":"P2","file_size":2}]}}`,
				Want: channel.Inbound{Kind: channel.Text, Event: "tg:9", Conversation: "tg:5", Place: "5", User: "5", UserName: "An", Text: "see",
					Message: "4", Files: []channel.InboundFile{{Name: "a.txt", Type: "text/plain", Size: 12, Ref: "D1"},
						{Name: "photo.jpg", Type: "image/jpeg", Size: 2, Ref: "P2"}}}},
			{Name: "a button", Body: `{"update_id":11,"callback_query":{"id":"4382bfdwdsb323b2d9","from":{"id":5,"first_name":"An","username":"an"},
				"message":{"message_id":6,"from":{"id":123456789,"is_bot":true,"first_name":"Sandjet"},"chat":{"id":5},"date":1,"text":"?"},
				"chat_instance":"1","data":"y:1"}}`,
				Want: channel.Inbound{Kind: channel.Pressed, Event: "tg:11", Conversation: "tg:5", Place: "5", User: "5", UserName: "an", Data: "y:1",
					Message: "6", Answer: channel.Answer{Type: "application/json",
						Body: []byte(`{"callback_query_id":"4382bfdwdsb323b2d9","method":"answerCallbackQuery"}`)}}},
			{Name: "a bot", Body: `{"update_id":12,"message":{"message_id":4,"from":{"id":6,"is_bot":true},"chat":{"id":5},"text":"x"}}`,
				Want: channel.Inbound{Kind: channel.Ignored, Why: "a bot wrote it"}},
			{Name: "an edit", Body: `{"update_id":13,"edited_message":{"message_id":4,"from":{"id":6},"chat":{"id":5},"text":"x"}}`,
				Want: channel.Inbound{Kind: channel.Ignored}},
			{Name: "a post of a channel", Body: `{"update_id":14,"channel_post":{"message_id":4,"chat":{"id":5},"text":"x"}}`,
				Want: channel.Inbound{Kind: channel.Ignored}},
			{Name: "somebody has joined", Body: `{"update_id":15,"message":{"message_id":4,"from":{"id":6},"chat":{"id":5},"new_chat_members":[]}}`,
				Want: channel.Inbound{Kind: channel.Ignored}},
			{Name: "an old button", Body: `{"update_id":16,"callback_query":{"id":"1","from":{"id":5},"inline_message_id":"x","data":"y"}}`,
				Want: channel.Inbound{Kind: channel.Ignored}},
		},
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, harness())
}

func TestDouble(t *testing.T) {
	t.Parallel()
	channeltest.Converse(t, harness().New, telegramtest.Double())
}

func open(t *testing.T, o telegramtest.Options) (*telegram.Adapter, *chatfake.Server) {
	t.Helper()
	fake := telegramtest.New(o)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	a, err := telegram.New(channel.Options{Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return a, fake
}

func TestMarksThatAreNotUnderstoodAreLeftOut(t *testing.T) {
	t.Parallel()
	a, fake := open(t, telegramtest.Options{})
	m := channel.Message{Key: "k", Text: "<b>bold", Plain: "bold", Reply: true}
	r, err := a.Send(t.Context(), to(`{"chat_id":7,"message_id":3}`), m)
	list := fake.Messages()
	if err != nil || len(list) != 1 || list[0].Text != "bold" || !list[0].Plain || list[0].Reply != "3" || fake.Requests() != 2 {
		t.Fatalf("%+v %v %+v", r, err, list)
	}
	m.Text = "<i>other"
	m.Plain = "other"
	if err := a.Edit(t.Context(), to(`{"chat_id":7}`), r.ID, m); err != nil || fake.Messages()[0].Text != "other" {
		t.Errorf("%v %+v", err, fake.Messages())
	}
	m.File = &channel.File{Name: "a", Data: []byte("x")}
	if _, err := a.Send(t.Context(), to(`{"chat_id":7}`), m); err != nil || fake.Messages()[1].Text != "other" {
		t.Errorf("%v %+v", err, fake.Messages())
	}
}

// If the response to the second request, without markup, is lost, the outcome is ambiguous as for any other request.
func TestTheSecondTryWithoutMarksIsLost(t *testing.T) {
	t.Parallel()
	a, fake := open(t, telegramtest.Options{})
	fake.Fail(chatfake.None, chatfake.CommitThenDrop)
	_, err := a.Send(t.Context(), to(`{"chat_id":7}`), channel.Message{Key: "k", Text: "<b>bold", Plain: "bold"})
	if channel.OutcomeOf(err) != channel.Ambiguous || len(fake.Messages()) != 1 {
		t.Errorf("%v %+v", err, fake.Messages())
	}
}

func TestAGroupThatMovedIsFollowed(t *testing.T) {
	t.Parallel()
	a, fake := open(t, telegramtest.Options{Moved: map[int64]int64{-7: -1009}})
	r, err := a.Send(t.Context(), to(`{"chat_id":-7,"message_id":3}`), channel.Message{Key: "k", Text: "x", Plain: "x", Reply: true})
	if err != nil || string(r.Route) != `{"chat_id":-1009}` || len(fake.Messages()) != 1 || fake.Messages()[0].Place != "-1009" {
		t.Fatalf("%+v %v %+v", r, err, fake.Messages())
	}
	if r.URL != "https://t.me/c/9/"+r.ID {
		t.Errorf("the address %q", r.URL)
	}
}

func TestWhoHasBlockedTheBotIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	a, _ := open(t, telegramtest.Options{Blocked: []int64{7}})
	_, err := a.Send(t.Context(), to(`{"chat_id":7}`), channel.Message{Key: "k", Text: "x", Plain: "x"})
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Refused || e.Credential || !strings.Contains(e.Reason, "bot was blocked by the user") {
		t.Errorf("%+v", err)
	}
}

func TestAChatThatIsFull(t *testing.T) {
	t.Parallel()
	a, _ := open(t, telegramtest.Options{PerChat: 1, Per: time.Minute})
	m := channel.Message{Key: "k", Text: "x", Plain: "x"}
	if _, err := a.Send(t.Context(), to(`{"chat_id":7}`), m); err != nil {
		t.Fatal(err)
	}
	_, err := a.Send(t.Context(), to(`{"chat_id":7}`), m)
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Limited || e.After < 58*time.Second || e.Of != channel.PerDestination {
		t.Errorf("%+v", err)
	}
	if _, err := a.Send(t.Context(), to(`{"chat_id":8}`), m); err != nil {
		t.Errorf("another chat waits too: %v", err)
	}
}

func TestACommandForAnotherBotIsIgnored(t *testing.T) {
	t.Parallel()
	a, _ := open(t, telegramtest.Options{})
	d := to(`{"chat_id":7}`)
	d.Settings = map[string]string{"username": "@Sandjet_Bot"}
	for text, want := range map[string]string{"/new@sandjet_bot": "/new", "/new@other_bot": "", "/ask@sandjet_bot a b\nc": "/ask a b\nc",
		"/ask@sandjet_bot\nc": "/ask\nc", "see @other_bot": "see @other_bot", "/x y@z": "/x y@z"} {
		in, err := a.Read(telegramtest.Says(secret, 1, 7, 7, text), d)
		if err != nil || in.Text != want || (in.Kind == channel.Ignored) != (want == "") {
			t.Errorf("%q: %+v %v", text, in, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	a, err := telegram.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range harness().Reads {
		f.Add([]byte(c.Body))
	}
	for _, id := range []string{`"message_id":-1`, `"message_id":1,"is_topic_message":true,"message_thread_id":-2`} {
		f.Add([]byte(`{"update_id":1,"message":{` + id + `,"from":{"id":7},"chat":{"id":1},"text":"a"}}`))
		f.Add([]byte(`{"update_id":1,"callback_query":{"id":"a","from":{"id":7},"message":{` + id + `,"chat":{"id":1}}}}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) { channeltest.ReadAny(t, a, channel.Request{Body: body}, to(`{}`)) })
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func FuzzAnswers(f *testing.F) { channeltest.FuzzAnswers(f, harness()) }

func FuzzRoute(f *testing.F) {
	a, err := telegram.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"chat_id":"@news","thread_id":3}`))
	f.Fuzz(func(t *testing.T, route []byte) { channeltest.RouteAny(t, a, route) })
}
