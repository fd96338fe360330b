package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// TestEveryChatHasADouble: for each chat service there is a double, so that it can be tried without an account at the service, and there
// are no other doubles.
func TestEveryChatHasADouble(t *testing.T) {
	t.Parallel()
	known := doubles()
	for _, c := range chats() {
		kind := c.new("").Profile().Kind
		if known[kind] == nil {
			t.Errorf("%s has no double", kind)
		}
		delete(known, kind)
	}
	if len(known) > 0 {
		t.Errorf("doubles of no service: %v", known)
	}
}

// TestADoublePrintsWhatItIsSent: the command prints each message that its double receives, with control characters replaced, and serves
// all of them as JSON at /fake.
func TestADoublePrintsWhatItIsSent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- (&channelsFakeCommand{Kind: "telegram", Listen: "127.0.0.1:0"}).Run(ctx, terminal{out: w, err: w})
	}()
	lines := bufio.NewScanner(r)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("it prints nothing more: %v", lines.Err())
		}
		return lines.Text()
	}
	at := regexp.MustCompile(`http://[0-9.:]+[0-9]`).FindString(next())
	a := chats()[0].new(at)
	to := channel.Destination{Credential: map[string]string{"bot_token": "1:token"}, Route: json.RawMessage(`{"chat_id":42}`)}
	sent := make(chan error, 1)
	go func() {
		m := channel.Message{Key: "k", Text: "<b>one</b>\ntwo\x1b[31m", Plain: "one\ntwo", Buttons: []channel.Button{{Label: "Yes", Data: "y"}}}
		_, err := a.Send(ctx, to, m)
		if err != nil {
			_ = w.CloseWithError(err)
		}
		sent <- err
	}()
	var got []string
	for range 4 {
		got = append(got, next())
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, " in 42") || !strings.Contains(all, "one") || strings.Contains(all, "\x1b") ||
		!strings.Contains(all, "[Yes] y") {
		t.Errorf("%q", all)
	}
	res, err := http.Get(at + "/fake")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || !json.Valid(b) || !strings.Contains(string(b), `"place": "42"`) {
		t.Errorf("%s, %v", b, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The double of Discord signs commands, files and buttons, as the service does, and a channel with its key takes them.
func TestTheDoubleOfDiscordSigns(t *testing.T) {
	t.Parallel()
	d := discordDouble()
	receiver, _ := chatReceiver(chats())("discord")
	to := channel.Destination{Credential: map[string]string{"bot_token": "any", "public_key": d.key}}
	ask := func(body string) (int, channel.Inbound) {
		t.Helper()
		w := httptest.NewRecorder()
		signed(w, httptest.NewRequest(http.MethodPost, "/fake/says", strings.NewReader(body)), d.says)
		var r signedRequest
		if w.Code != http.StatusOK {
			return w.Code, channel.Inbound{}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		request := channel.Request{Header: r.Header, Body: r.Body}
		if err := receiver.Verify(request, to, time.Now()); err != nil {
			t.Fatal(err)
		}
		in, err := receiver.Read(request, to)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, in
	}
	const who = `"place":"41771983423143937","user":"7"`
	if _, in := ask(`{` + who + `,"text":"see","files":["a b.txt"]}`); in.Text != "see" || len(in.Files) != 1 || in.Files[0].Name != "a b.txt" {
		t.Errorf("%+v", in)
	}
	if _, in := ask(`{` + who + `,"text":"/run ls"}`); in.Text != "/run ls" || in.Kind != channel.Text {
		t.Errorf("%+v", in)
	}
	d.Add(chatfake.Message{ID: "9", Place: "41771983423143937", Press: []chatfake.Button{{Label: "Yes", Data: "approve:x"}}})
	if _, in := ask(`{` + who + `,"press":"approve:x"}`); in.Kind != channel.Pressed || in.Data != "approve:x" || in.Message != "9" {
		t.Errorf("%+v", in)
	}
	for _, body := range []string{"", "{", `{"nonsense":1}`} {
		if code, _ := ask(body); code != http.StatusBadRequest {
			t.Errorf("%q: %d", body, code)
		}
	}
}
