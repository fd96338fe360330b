package pancake_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/channeltest"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/pancake"
	"github.com/sandjet/sandjet/delivery/pancake/pancaketest"
)

const (
	token  = "eyJhbGciOi.not-a-real/token+at=all"
	secret = "s3cret of-the-hook"
)

func to(route string) channel.Destination {
	return channel.Destination{Credential: map[string]string{"page_access_token": token, "hook_secret": secret}, Route: json.RawMessage(route)}
}

func harness() channeltest.Harness {
	const page = "256469571178082"
	message := func(message, conversation string) string {
		return `{"event_type":"messaging","page_id":"` + page + `","data":{"conversation":{"id":"256469571178082_3100878013328342","type":"INBOX"` +
			conversation + `},"message":{"id":"m_Ec_f7RJrKyJlRKXVdEYW5g","type":"INBOX",` + message + `}}}`
	}
	const customer = `"from":{"id":"3100878013328342","name":"Quyết"}`
	want := channel.Inbound{Kind: channel.Text, Conversation: "pancake:" + page + ":256469571178082_3100878013328342", Place: page,
		User: "3100878013328342", UserName: "Quyết", Message: "m_Ec_f7RJrKyJlRKXVdEYW5g"}
	text := func(event, s string) channel.Inbound {
		w := want
		w.Event, w.Text = "pancake:"+page+":m_Ec_f7RJrKyJlRKXVdEYW5g:"+event, s
		return w
	}
	pictures := text("e3b0c44298fc1c14", "")
	pictures.Files = []channel.InboundFile{{Name: "photo.jpg", Ref: "https://content.pancake.vn/1/a.jpg"},
		{Name: "b.pdf", Type: "application/pdf", Size: 7, Ref: "https://scontent.fbcdn.net/b"}}
	return channeltest.Harness{
		New:     func(o channel.Options) (channel.Adapter, error) { return pancake.New(o) },
		Fake:    func() *chatfake.Server { return pancaketest.New(pancaketest.Options{Token: token}) },
		Fetched: channeltest.Fetched{File: channel.InboundFile{Name: "a", Ref: "https://content.pancake.vn/1/a.jpg"}, Path: "/1/a.jpg"},
		To:      to(`{"page_id":"256469571178082","conversation_id":"256469571178082_3100878013328342","message_id":"m_1"}`),
		Place:   "256469571178082/256469571178082_3100878013328342",
		Elsewhere: []json.RawMessage{[]byte(`{"page_id":"wa_c.us@84328290781","conversation_id":"wa_84328290781@c.us_62818166016@c.us"}`),
			[]byte(`{"page_id":1,"conversation_id":"2_3","message_id":"4","type":"COMMENT"}`)},
		BadRoutes: []json.RawMessage{[]byte(`{"page_id":"1"}`), []byte(`{"page_id":"1","conversation_id":"../x"}`),
			[]byte(`{"page_id":"1","conversation_id":".."}`), []byte(`{"page_id":"1","conversation_id":"2","type":"COMMENT"}`),
			[]byte(`{"page_id":"1","conversation_id":"2","type":"RATING"}`), []byte(`{"page_id":["1"],"conversation_id":"2"}`)},
		Secrets: []string{token, secret},
		Sign:    func(body string, _ time.Time) channel.Request { return pancaketest.Post(secret, body) },
		Lacking: map[string]string{"page_access_token": token},
		Refused: map[string]func(*channel.Request){
			"another secret": func(r *channel.Request) { r.Query.Set("secret", secret+"x") },
		},
		Reads: []channeltest.Read{
			{Name: "a chat of two", Body: message(`"original_message":"asda","message":"<div>asda</div>",`+customer, ""), Want: text("8a86c4eecf12446f", "asda")},
			{Name: "marks alone", Body: message(`"message":"<div>a &lt; b</div><div>c</div>",`+customer, ""), Want: text("191ab226d5a28cd7", "a < b\nc")},
			{Name: "the page", Body: message(`"original_message":"x","from":{"id":"256469571178082"}`, ""),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "the page wrote it"}},
			{Name: "somebody of the page", Body: message(`"original_message":"x","from":{"id":"7","admin_id":"82be33ea"}`, ""),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "the page wrote it"}},
			{Name: "hidden", Body: message(`"original_message":"x","is_hidden":true,`+customer, ""),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "it is hidden or removed"}},
			{Name: "a picture", Body: message(`"original_message":"","attachments":[{}],`+customer, ""),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "it has neither text nor files"}},
			{Name: "a picture that is somewhere", Body: message(`"original_message":"",
				"attachments":[{"type":"photo","url":"https://content.pancake.vn/1/a.jpg"},{"type":"file","name":"b.pdf","mime_type":"application/pdf",
				"size":7,"url":"https://scontent.fbcdn.net/b"}],`+customer, ""), Want: pictures},
			{Name: "an order", Body: `{"event_type":"order","page_id":"1"}`, Want: channel.Inbound{Kind: channel.Ignored, Why: "it is no message"}},
		},
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, harness())
}

func open(t *testing.T) (*pancake.Adapter, *chatfake.Server) {
	t.Helper()
	fake := pancaketest.New(pancaketest.Options{Token: token})
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	a, err := pancake.New(channel.Options{Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return a, fake
}

func TestCommentsAreAnsweredBelowThem(t *testing.T) {
	t.Parallel()
	a, fake := open(t)
	d := to(`{"page_id":"1","conversation_id":"1_2","message_id":"1_2_3","type":"COMMENT"}`)
	d.Settings = map[string]string{"sender_id": "82be33ea"}
	if _, err := a.Send(t.Context(), d, channel.Message{Key: "k", Text: "x"}); err != nil || fake.Messages()[0].Reply != "1_2_3" {
		t.Errorf("%v %+v", err, fake.Messages())
	}
	d.Credential = map[string]string{"page_access_token": "another"}
	_, err := a.Send(t.Context(), d, channel.Message{Key: "k", Text: "x"})
	if e, ok := errors.AsType[*channel.Error](err); !ok || e.Outcome != channel.Refused || !e.Credential {
		t.Error(err)
	}
}

func TestPeopleTakeConversationsOver(t *testing.T) {
	t.Parallel()
	a, _ := open(t)
	body := func(tags string) channel.Request {
		return pancaketest.Post(secret, `{"event_type":"messaging","page_id":"1","data":{"conversation":{"id":"1_2","tags":`+tags+`},
			"message":{"id":"m_1","original_message":"x","from":{"id":"2"}}}}`)
	}
	for settings, c := range map[string]map[string]channel.InboundKind{
		"":      {`[3]`: channel.Text, `null`: channel.Text},
		"9, 3,": {`[3]`: channel.Ignored, `["3"]`: channel.Ignored, `[{"id":3,"text":"taken"}]`: channel.Ignored, `[4]`: channel.Text, `[null]`: channel.Text},
	} {
		for tags, want := range c {
			d := to(`{}`)
			d.Settings = map[string]string{"ignore_tags": settings, "page_id": "1"}
			if in, err := a.Read(body(tags), d); err != nil || in.Kind != want {
				t.Errorf("%s of %q: %+v %v", tags, settings, in, err)
			}
			d.Settings["page_id"] = "other"
			if in, err := a.Read(body(tags), d); err != nil || in.Kind != channel.Ignored {
				t.Errorf("of another page: %+v %v", in, err)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	a, err := pancake.New(channel.Options{})
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
	a, err := pancake.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"page_id":"1","conversation_id":"1_2","message_id":"1_2_3","type":"COMMENT"}`))
	f.Fuzz(func(t *testing.T, route []byte) { channeltest.RouteAny(t, a, route) })
}
