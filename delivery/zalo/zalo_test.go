package zalo_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/channeltest"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/zalo"
	"github.com/sandjet/sandjet/delivery/zalo/zalotest"
)

const (
	token  = "1459232241454765289:HmaFpBqX-secret"
	secret = "s3cret of the hook"
)

func to(route string) channel.Destination {
	return channel.Destination{Credential: map[string]string{"bot_token": token, "secret_token": secret}, Route: json.RawMessage(route)}
}

func harness() channeltest.Harness {
	text := channel.Inbound{Kind: channel.Text,
		Event:        "zalo:message.text.received:6ede9afa66b88fe6d6a9:6ede9afa66b88fe6d6a9:2d758cb5e222177a4e35",
		Conversation: "zalo:6ede9afa66b88fe6d6a9", Place: "6ede9afa66b88fe6d6a9", User: "6ede9afa66b88fe6d6a9", UserName: "Ted", Text: "Xin chào",
		Message: "2d758cb5e222177a4e35", Route: []byte(`{"chat_id":"6ede9afa66b88fe6d6a9"}`)}
	const message = `{"from":{"id":"6ede9afa66b88fe6d6a9","display_name":"Ted","is_bot":false},"chat":{"id":"6ede9afa66b88fe6d6a9","chat_type":"PRIVATE"},
		"text":"Xin chào","message_id":"2d758cb5e222177a4e35","date":1750316131602}`
	photo := channel.Inbound{Kind: channel.Text, Event: "zalo:message.image.received:2:1:44", Conversation: "zalo:2", Place: "2", User: "1",
		Text: "see", UserName: "An", Message: "44", Files: []channel.InboundFile{{Name: "photo.jpg", Type: "image/jpeg", Ref: "https://photo.example.com/1.jpg"}}}
	return channeltest.Harness{
		New:       func(o channel.Options) (channel.Adapter, error) { return zalo.New(o) },
		Fake:      func() *chatfake.Server { return zalotest.New(zalotest.Options{Token: token}) },
		To:        to(`{"chat_id":"6ede9afa66b88fe6d6a9"}`),
		Place:     "6ede9afa66b88fe6d6a9",
		Fetched:   channeltest.Fetched{File: channel.InboundFile{Name: "a", Ref: "https://f5-zpg.zdn.vn/1.jpg?x=1"}, Path: "/1.jpg"},
		Elsewhere: []json.RawMessage{[]byte(`{"chat_id":"7"}`), []byte(`{"chat_id":8}`)},
		BadRoutes: []json.RawMessage{[]byte(`{"chat_id":""}`), []byte(`{"chat_id":"a b"}`), []byte(`{"chat_id":["7"]}`), []byte(`{"chat_id":1.5}`)},
		Secrets:   []string{token, "HmaFpBqX-secret", secret},
		Sign:      func(body string, _ time.Time) channel.Request { return zalotest.Event(secret, body) },
		Lacking:   map[string]string{"bot_token": token},
		Refused: map[string]func(*channel.Request){
			"another secret": func(r *channel.Request) { r.Header.Set("X-Bot-Api-Secret-Token", secret+"x") },
			"another header": func(r *channel.Request) {
				r.Header.Del("X-Bot-Api-Secret-Token")
				r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
			},
		},
		Reads: []channeltest.Read{
			{Name: "text, wrapped", Body: `{"ok":true,"result":{"message":` + message + `,"event_name":"message.text.received"}}`, Want: text},
			{Name: "text", Body: `{"message":` + message + `,"event_name":"message.text.received"}`, Want: text},
			{Name: "a picture, and ids that are numbers", Body: `{"event_name":"message.image.received","message":{"message_id":44,"from":{"id":1,"name":"An"},
				"chat":{"id":2,"chat_type":"PRIVATE"},"photo_url":"https://photo.example.com/1.jpg","caption":"see"}}`, Want: photo},
			{Name: "a group", Body: `{"event_name":"message.text.received","message":{"message_id":"4","from":{"id":"1"},
				"chat":{"id":"2","chat_type":"GROUP"},"text":"x"}}`, Want: channel.Inbound{Kind: channel.Ignored}},
			{Name: "a bot", Body: `{"event_name":"message.text.received","message":{"message_id":"4","from":{"id":"1","is_bot":true},
				"chat":{"id":"2","chat_type":"PRIVATE"},"text":"x"}}`, Want: channel.Inbound{Kind: channel.Ignored, Why: "a bot wrote it"}},
			{Name: "a sticker", Body: `{"event_name":"message.sticker.received","message":{"message_id":"4","from":{"id":"1"},
				"chat":{"id":"2","chat_type":"PRIVATE"},"sticker":"x"}}`, Want: channel.Inbound{Kind: channel.Ignored}},
			{Name: "nothing", Body: `{"ok":true}`, Want: channel.Inbound{Kind: channel.Ignored}},
		},
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, harness())
}

func TestDouble(t *testing.T) {
	t.Parallel()
	channeltest.Converse(t, harness().New, zalotest.Double())
}

// Zalo reports refusals with a status of success. A bot cannot write to a person who has not written to it.
func TestWhoHasNotWrittenIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(zalotest.New(zalotest.Options{Unknown: []string{"7"}}))
	t.Cleanup(server.Close)
	a, err := zalo.New(channel.Options{Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Send(t.Context(), to(`{"chat_id":"7"}`), channel.Message{Key: "k", Text: "x", Plain: "x"})
	if e, ok := errors.AsType[*channel.Error](err); !ok || e.Outcome != channel.Refused || e.Credential || e.Status != 200 {
		t.Errorf("%+v", err)
	}
	in, err := a.Read(zalotest.Says(secret, "m1", "8", "8", "hello"), to(`{}`))
	if err != nil || in.Text != "hello" {
		t.Errorf("%+v %v", in, err)
	}
}

func FuzzRead(f *testing.F) {
	a, err := zalo.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range harness().Reads {
		f.Add([]byte(c.Body))
	}
	f.Fuzz(func(t *testing.T, body []byte) { channeltest.ReadAny(t, a, channel.Request{Body: body}, to(`{}`)) })
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func FuzzAnswers(f *testing.F) { channeltest.FuzzAnswers(f, harness()) }

func FuzzRoute(f *testing.F) {
	a, err := zalo.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"chat_id":"6ede9afa66b88fe6d6a9"}`))
	f.Fuzz(func(t *testing.T, route []byte) { channeltest.RouteAny(t, a, route) })
}
