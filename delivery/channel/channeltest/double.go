package channeltest

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Converse checks that a double and an adapter work together as in manual use: a person's message is received, and the answer is sent to
// the place where it was written.
func Converse(t *testing.T, open func(channel.Options) (channel.Adapter, error), d chatfake.Double) {
	t.Helper()
	server := httptest.NewServer(d.Server)
	t.Cleanup(server.Close)
	a, err := open(channel.Options{Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if kind := a.Profile().Kind; kind != d.Kind {
		t.Errorf("a double of %q for %q", d.Kind, kind)
	}
	to := channel.Destination{Credential: d.Secrets, Route: d.Route}
	if r, err := a.Send(t.Context(), to, channel.Message{Key: "one", Text: "unasked", Plain: "unasked"}); err != nil || r.ID == "" {
		t.Fatalf("%+v %v", r, err)
	}
	events := map[string]bool{}
	for _, text := range []string{"hello, how are you?", "again", "/status"} {
		h, body, err := d.Says(d.Secrets, d.Place, d.User, text)
		if err != nil {
			t.Fatal(err)
		}
		receiver, ok := a.(channel.Receiver)
		if !ok {
			t.Fatal("it is no Receiver")
		}
		r := channel.Request{Header: h, Body: body}
		if err := receiver.Verify(r, to, time.Now()); err != nil {
			t.Fatal(err)
		}
		in, err := receiver.Read(r, to)
		if err != nil || in.Kind != channel.Text || in.Text != text || in.Place != d.Place || in.User != d.User || events[in.Event] {
			t.Fatalf("%+v %v", in, err)
		}
		events[in.Event] = true
		answer := channel.Message{Key: "to-" + strings.ReplaceAll(in.Event, ":", "_"), Text: "fine", Plain: "fine", Reply: true}
		if got, err := a.Send(t.Context(), channel.Destination{Credential: d.Secrets, Route: in.Route}, answer); err != nil || got.ID == "" {
			t.Fatalf("%+v %v", got, err)
		}
	}
	if list := d.Server.Messages(); len(list) != 4 || list[0].Text != "unasked" || list[3].Text != "fine" {
		t.Errorf("%+v", list)
	}
	if _, _, err := d.Says(map[string]string{}, d.Place, d.User, "x"); err == nil {
		t.Error("it signs without a secret")
	}
}
