package channeltest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// ReadAny checks, for fuzzing, that any request is read, ignored or refused, and that one that is read has a route for the answer.
func ReadAny(t *testing.T, a channel.Adapter, r channel.Request, to channel.Destination) {
	t.Helper()
	receiver, ok := a.(channel.Receiver)
	if !ok {
		t.Fatal("it is no Receiver")
	}
	in, err := receiver.Read(r, to)
	if err != nil {
		if schemas.CodeOf(err) != schemas.Invalid {
			t.Fatalf("%v", err)
		}
		return
	}
	switch in.Kind {
	case channel.Handshake:
	case channel.Ignored:
		if in.Why == "" {
			t.Fatal("nobody knows why it is ignored")
		}
	case channel.Text, channel.Pressed:
		if in.Event == "" || in.Conversation == "" || in.Place == "" || in.User == "" {
			t.Fatalf("%+v lacks a name", in)
		}
		if _, err := a.Destination(in.Route); err != nil {
			t.Fatalf("%s leads nowhere: %v", in.Route, err)
		}
		for _, s := range []string{in.Event, in.Conversation, in.Text, in.Data} {
			if !utf8.ValidString(s) {
				t.Fatalf("%q is no text", s)
			}
		}
	default:
		t.Fatalf("a kind %q", in.Kind)
	}
}

// RouteAny checks, for fuzzing, that any route names a destination or is refused, with the same result each time.
func RouteAny(t *testing.T, a channel.Adapter, route json.RawMessage) {
	t.Helper()
	name, err := a.Destination(route)
	again, err2 := a.Destination(route)
	if name != again || (err == nil) != (err2 == nil) || (name == "") != (err != nil) {
		t.Fatalf("%q %q %v %v", name, again, err, err2)
	}
	if err != nil && schemas.CodeOf(err) != schemas.Invalid {
		t.Fatal(err)
	}
}

// FuzzAnswers answers every request of an adapter with arbitrary bytes, and checks that each error states the outcome and contains no
// secret.
func FuzzAnswers(f *testing.F, h Harness) {
	f.Helper()
	for _, body := range []string{
		`{"ok":true,"result":{"message_id":7}}`, `{"ok":false,"error_code":429,"parameters":{"retry_after":1e300}}`, `{"ok":true,"ts":"1.2"}`,
		`{"id":7,"html_url":"https://a.example"}`, `{"id":"7","nonce":"x"}`, `{"success":false}`, `[{"id":1,"body":"<!-- sandjet:x -->"}]`, "[", "",
		`{"retry_after":-1,"global":true}`, `{"ok":true,"messages":[{}],"response_metadata":{"next_cursor":"x"}}`,
	} {
		f.Add(uint16(0), "", []byte(body))
		f.Add(uint16(229), "1e999", []byte(body))
	}
	f.Fuzz(func(t *testing.T, status uint16, after string, body []byte) {
		requests := 0
		a, err := h.New(channel.Options{Base: "http://service.example", Transport: answers(func(r *http.Request) (*http.Response, error) {
			if requests++; requests > 1000 {
				t.Fatal("it never ends")
			}
			if r.Body != nil {
				_, _ = io.Copy(io.Discard, r.Body)
				_ = r.Body.Close()
			}
			return &http.Response{StatusCode: 200 + int(status)%400, Header: http.Header{"Retry-After": {after}, "X-Ratelimit-Reset-After": {after},
				"X-Ratelimit-Reset": {after}, "X-Ratelimit-Remaining": {"0"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		x := &fixture{Harness: h, adapter: a}
		for name, op := range x.operations(h.To) {
			requests = 0
			if err := op(t.Context()); err != nil {
				e := x.safe(t, err)
				if !slices.Contains([]channel.Outcome{channel.NotSent, channel.Ambiguous, channel.Limited, channel.Refused}, e.Outcome) || e.After < 0 {
					t.Errorf("%s: %+v", name, e)
				}
			}
		}
		if r, err := a.Send(t.Context(), h.To, x.message()); err == nil && (r.ID == "" || r.Rest < 0) {
			t.Errorf("it was sent, and nobody knows as what: %+v", r)
		}
	})
}

type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
