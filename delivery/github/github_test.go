package github_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/channeltest"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/github"
	"github.com/sandjet/sandjet/delivery/github/githubtest"
)

const (
	token  = "github_pat_not-a-real/one+at=all"
	secret = "It's a Secret to Everybody" // of GitHub's documentation
	guid   = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
)

func to(route string) channel.Destination {
	return channel.Destination{Credential: map[string]string{"token": token, "webhook_secret": secret}, Route: json.RawMessage(route)}
}

// kind returns the event of a payload.
func kind(body string) string {
	switch {
	case strings.Contains(body, `"zen"`):
		return "ping"
	case strings.Contains(body, `"in_review"`):
		return "pull_request_review_comment"
	case strings.Contains(body, `"comment"`):
		return "issue_comment"
	case strings.Contains(body, `"pull_request"`):
		return "pull_request"
	}
	return "issues"
}

func harness() channeltest.Harness {
	with := func(s string) string {
		return `{` + s + `,"repository":{"full_name":"octo/hello"},"sender":{"login":"an","type":"User"},"installation":{"id":77}}`
	}
	return channeltest.Harness{
		New:   func(o channel.Options) (channel.Adapter, error) { return github.New(o) },
		Fake:  func() *chatfake.Server { return githubtest.New(githubtest.Options{Token: token}).Server },
		To:    to(`{"repo":"octo/hello","number":5,"comment_id":9}`),
		Place: "octo/hello#5",
		Fetched: channeltest.Fetched{File: channel.InboundFile{Name: "a", Ref: "https://github.com/user-attachments/files/1/a.csv"}, Path: "/user-attachments/files/1/a.csv", Guarded: "Authorization",
			Shown: "Bearer " + token},
		Elsewhere: []json.RawMessage{[]byte(`{"repo":"octo/hello","number":6}`), []byte(`{"repo":"octo/hello.go","number":5}`),
			[]byte(`{"repo":"octo/Bye","number":5,"review_comment_id":3}`)},
		BadRoutes: []json.RawMessage{[]byte(`{"repo":"hello","number":5}`), []byte(`{"repo":"octo/..","number":5}`),
			[]byte(`{"repo":"octo/a/b","number":5}`), []byte(`{"repo":"octo/hello"}`), []byte(`{"repo":"octo/hello","number":"5"}`),
			[]byte(`{"repo":"octo/he llo","number":5}`), []byte(`{"repo":"octo/hello","number":5,"comment_id":-1}`)},
		Secrets: []string{token, secret},
		Sign:    func(body string, _ time.Time) channel.Request { return githubtest.Sign(secret, kind(body), guid, body) },
		Lacking: map[string]string{"token": token},
		Refused: map[string]func(*channel.Request){
			"another secret": func(r *channel.Request) { *r = githubtest.Sign(secret+"x", "issues", guid, string(r.Body)) },
			"another body":   func(r *channel.Request) { r.Body = append(r.Body, ' ') },
			"another way": func(r *channel.Request) {
				r.Header.Set("X-Hub-Signature-256", strings.TrimPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256="))
			},
		},
		Reads: []channeltest.Read{
			{Name: "a comment with files", Body: with(`"action":"created","issue":{"number":5,"title":"T"},"comment":{"id":9,
				"body":"see [a b.csv](https://github.com/user-attachments/files/1/a.b.csv) ![i](https://github.com/user-attachments/assets/0f-1) and https://example.com/user-attachments/files/1/x https://github.com/octo/hello/issues/3 [again](https://github.com/user-attachments/files/1/a.b.csv)"}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "gh:" + guid, Conversation: "gh:octo/hello:issue:5", Place: "octo/hello", User: "an",
					UserName: "an", Text: "see [a b.csv](https://github.com/user-attachments/files/1/a.b.csv) ![i](https://github.com/user-attachments/assets/0f-1) and https://example.com/user-attachments/files/1/x https://github.com/octo/hello/issues/3 [again](https://github.com/user-attachments/files/1/a.b.csv)",
					Message: "9", Files: []channel.InboundFile{{Name: "a b.csv", Ref: "https://github.com/user-attachments/files/1/a.b.csv"},
						{Name: "i", Ref: "https://github.com/user-attachments/assets/0f-1"}}}},
			{Name: "a comment", Body: with(`"action":"created","issue":{"number":5,"title":"T","body":"B"},"comment":{"id":9,"body":"/status"}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "gh:" + guid, Conversation: "gh:octo/hello:issue:5", Place: "octo/hello", User: "an",
					UserName: "an", Text: "/status", Message: "9",
					Route: []byte(`{"repo":"octo/hello","number":5,"comment_id":9,"installation_id":77}`)}},
			{Name: "a comment on a pull request", Body: with(`"action":"created","issue":{"number":5,"pull_request":{}},"comment":{"id":9,"body":"x"}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "gh:" + guid, Conversation: "gh:octo/hello:pr:5", Place: "octo/hello", User: "an",
					UserName: "an", Text: "x", Message: "9"}},
			{Name: "a comment on code", Body: with(`"in_review":1,"action":"created","pull_request":{"number":5},
				"comment":{"id":9,"body":"x","in_reply_to_id":3}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "gh:" + guid, Conversation: "gh:octo/hello:pr:5", Place: "octo/hello", User: "an",
					UserName: "an", Text: "x", Message: "9",
					Route: []byte(`{"repo":"octo/hello","number":5,"comment_id":9,"review_comment_id":3,"installation_id":77}`)}},
			{Name: "an issue", Body: with(`"action":"opened","issue":{"number":5,"title":"It fails","body":"each time"}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "gh:" + guid, Conversation: "gh:octo/hello:issue:5", Place: "octo/hello", User: "an",
					UserName: "an", Text: "It fails\n\neach time", Message: "5"}},
			{Name: "a pull request", Body: with(`"action":"opened","pull_request":{"number":6,"title":"Mend it","body":null}`),
				Want: channel.Inbound{Kind: channel.Text, Event: "gh:" + guid, Conversation: "gh:octo/hello:pr:6", Place: "octo/hello", User: "an",
					UserName: "an", Text: "Mend it", Message: "6"}},
			{Name: "the address is tried", Body: `{"zen":"Non-blocking is better than blocking.","hook_id":1}`,
				Want: channel.Inbound{Kind: channel.Handshake}},
			{Name: "a label", Body: with(`"action":"labeled","issue":{"number":5}`),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "it is nothing that people say: issues labeled"}},
			{Name: "a bot", Body: strings.Replace(with(`"action":"created","issue":{"number":5},"comment":{"id":9,"body":"x"}`), `"User"`, `"Bot"`, 1),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "a bot wrote it"}},
			{Name: "ours", Body: with(`"action":"created","issue":{"number":5},"comment":{"id":9,"body":"x\n\n<!-- sandjet:k -->"}`),
				Want: channel.Inbound{Kind: channel.Ignored, Why: "we wrote it"}},
		},
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, harness())
}

// The example of https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries.
func TestTheDocumentedSignature(t *testing.T) {
	t.Parallel()
	a, err := github.New(channel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := channel.Request{Header: http.Header{}, Body: []byte("Hello, World!")}
	r.Header.Set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
	if err := a.Verify(r, to(""), time.Now()); err != nil {
		t.Error(err)
	}
}

func open(t *testing.T, o githubtest.Options, now func() time.Time) (*github.Adapter, *githubtest.Service) {
	t.Helper()
	fake := githubtest.New(o)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	a, err := github.New(channel.Options{Base: server.URL, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return a, fake
}

func message(n int) channel.Message {
	return channel.Message{Key: fmt.Sprintf("k.%d", n), Text: "x", Plain: "x"}
}

func TestAnAppKeepsItsToken(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_764_000_000, 0)
	clock := func() time.Time { return now }
	a, fake := open(t, githubtest.Options{App: "1234", Key: &key.PublicKey, Now: clock}, clock)
	eight, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	forms := []string{
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: eight})),
	}
	app := func(form string) channel.Destination {
		return channel.Destination{Credential: map[string]string{"app_id": "1234", "private_key": form},
			Route: []byte(`{"repo":"octo/hello","number":5,"installation_id":77}`)}
	}
	for i := range 3 {
		if _, err := a.Send(t.Context(), app(forms[0]), message(i)); err != nil || fake.Minted() != 1 {
			t.Fatalf("%v, %d tokens", err, fake.Minted())
		}
	}
	now = now.Add(56 * time.Minute) // it expires too soon
	if _, err := a.Send(t.Context(), app(forms[0]), message(4)); err != nil || fake.Minted() != 2 {
		t.Errorf("%v, %d tokens", err, fake.Minted())
	}
	if _, err := a.Send(t.Context(), app(forms[1]), message(5)); err != nil || fake.Minted() != 3 {
		t.Errorf("another form of the key: %v, %d tokens", err, fake.Minted())
	}
	// The second token has replaced the first, which GitHub no longer accepts: the next try requests a new one.
	_, err = a.Send(t.Context(), app(forms[0]), message(6))
	if channel.OutcomeOf(err) != channel.NotSent {
		t.Errorf("%v", err)
	}
	if _, err := a.Send(t.Context(), app(forms[0]), message(6)); err != nil || fake.Minted() != 4 {
		t.Errorf("%v, %d tokens", err, fake.Minted())
	}
	if about, err := a.Check(t.Context(), app(forms[1])); err != nil || about != "the app Sandjet" {
		t.Errorf("%q %v", about, err)
	}
	fake.Fail(chatfake.ServerError)
	other := app(forms[0])
	other.Route = []byte(`{"repo":"octo/hello","number":5,"installation_id":78}`)
	if _, err := a.Send(t.Context(), other, message(7)); channel.OutcomeOf(err) != channel.NotSent {
		t.Errorf("no token, and yet %v", err)
	}
}

func TestWrongKeysOfApps(t *testing.T) {
	t.Parallel()
	a, fake := open(t, githubtest.Options{App: "1234"}, nil)
	for name, d := range map[string]channel.Destination{
		"no text": {Credential: map[string]string{"app_id": "1234", "private_key": "s3cret"}},
		"no key": {Credential: map[string]string{"app_id": "1234",
			"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("s3cret")}))}},
	} {
		d.Route = []byte(`{"repo":"octo/hello","number":5,"installation_id":77}`)
		_, err := a.Send(t.Context(), d, message(1))
		e, ok := errors.AsType[*channel.Error](err)
		if !ok || e.Outcome != channel.Refused || !e.Credential || strings.Contains(err.Error(), "s3cret") || fake.Requests() != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := channel.Destination{Credential: map[string]string{"app_id": "1234", "private_key": "x"}, Route: []byte(`{"repo":"octo/hello","number":5}`)}
	_, err := a.Send(t.Context(), d, message(1))
	if channel.OutcomeOf(err) != channel.Refused || !strings.Contains(err.Error(), "installation_id") {
		t.Error(err)
	}
}

func TestThreadsOnCode(t *testing.T) {
	t.Parallel()
	a, fake := open(t, githubtest.Options{}, nil)
	d := to(`{"repo":"octo/hello","number":5,"review_comment_id":3,"comment_id":9}`)
	sent, err := a.Send(t.Context(), d, message(1))
	if err != nil || fake.Messages()[0].Place != "octo/hello#5:3" {
		t.Fatalf("%v %+v", err, fake.Messages())
	}
	if r, found, err := a.Find(t.Context(), d, "k.1", time.Now()); err != nil || !found || r.ID != sent.ID {
		t.Errorf("%+v %v %v", r, found, err)
	}
	if err := a.Edit(t.Context(), d, sent.ID, channel.Message{Key: "k.1", Text: "y"}); err != nil || fake.Messages()[0].Text != "y" {
		t.Errorf("%v %+v", err, fake.Messages())
	}
	if err := a.React(t.Context(), d); err != nil || fake.Marks()[0].On != "9" {
		t.Errorf("%v %+v", err, fake.Marks())
	}
}

func TestALookGoesThroughPages(t *testing.T) {
	t.Parallel()
	a, fake := open(t, githubtest.Options{}, nil)
	d := to(`{"repo":"octo/hello","number":5}`)
	for i := range 250 {
		fake.Add(chatfake.Message{ID: fmt.Sprint(i + 1), Place: "octo/hello#5", Text: "x", Nonce: fmt.Sprintf("k.%d", i)})
	}
	if r, found, err := a.Find(t.Context(), d, "k.249", time.Now()); err != nil || !found || r.ID != "250" || fake.Requests() != 3 {
		t.Errorf("%+v %v %v, %d requests", r, found, err, fake.Requests())
	}
	for i := range 250 {
		fake.Add(chatfake.Message{ID: fmt.Sprint(i + 251), Place: "octo/hello#5", Text: "x"})
	}
	if _, found, err := a.Find(t.Context(), d, "other", time.Now()); channel.OutcomeOf(err) != channel.Ambiguous || found {
		t.Errorf("%v %v", found, err)
	}
}

func TestALockedIssueIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	a, _ := open(t, githubtest.Options{Locked: []string{"octo/hello#5"}}, nil)
	_, err := a.Send(t.Context(), to(`{"repo":"octo/hello","number":5}`), message(1))
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Refused || e.Credential || !strings.Contains(e.Reason, "locked") {
		t.Error(err)
	}
}

func TestOnlyWhatNamesUsIsTaken(t *testing.T) {
	t.Parallel()
	a, _ := open(t, githubtest.Options{}, nil)
	d := to(`{}`)
	d.Settings = map[string]string{"mention": "@Sandjet"}
	for text, want := range map[string]string{"@sandjet /new": "/new", "please, @sandjet, look": "please, @sandjet, look",
		"nobody": "", "@sandjet-two x": "@sandjet-two x"} {
		in, err := a.Read(githubtest.Says(secret, "octo/hello", 5, 9, "an", text), d)
		if err != nil || in.Text != want || (in.Kind == channel.Ignored) != (want == "") {
			t.Errorf("%q: %+v %v", text, in, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	a, err := github.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range harness().Reads {
		f.Add([]byte(c.Body), kind(c.Body))
	}
	f.Fuzz(func(t *testing.T, body []byte, event string) {
		channeltest.ReadAny(t, a, githubtest.Sign(secret, event, guid, string(body)), to(`{}`))
	})
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func FuzzAnswers(f *testing.F) { channeltest.FuzzAnswers(f, harness()) }

func FuzzRoute(f *testing.F) {
	a, err := github.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"repo":"octo/hello","number":5,"comment_id":9}`))
	f.Fuzz(func(t *testing.T, route []byte) { channeltest.RouteAny(t, a, route) })
}
