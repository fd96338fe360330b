package oracle_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/discord"
	"github.com/sandjet/sandjet/delivery/discord/discordtest"
	"github.com/sandjet/sandjet/delivery/github"
	"github.com/sandjet/sandjet/delivery/github/githubtest"
	"github.com/sandjet/sandjet/delivery/slack"
	"github.com/sandjet/sandjet/delivery/slack/slacktest"
	"github.com/sandjet/sandjet/delivery/telegram"
	"github.com/sandjet/sandjet/delivery/telegram/telegramtest"
	"github.com/sandjet/sandjet/internal/longtest"
)

// libraries runs the libraries. They are installed once.
type libraries struct {
	t   *testing.T
	dir string
}

func install(t *testing.T) *libraries {
	t.Helper()
	longtest.Only(t, "it installs the libraries of chat services for JavaScript")
	l := &libraries{t: t, dir: t.TempDir()} // node_modules must not appear in the tree
	if err := os.CopyFS(l.dir, os.DirFS("client")); err != nil {
		t.Fatal(err)
	}
	l.run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	return l
}

func (l *libraries) run(name string, args ...string) []byte {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = l.dir
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%s (it needs Node.js 20 or later and npm): %v\n%s%s", name, err, out, errors.String())
	}
	return out
}

func (l *libraries) ask(verb string, of, into any) {
	l.t.Helper()
	text, err := json.Marshal(map[string]any{"verb": verb, "of": of})
	if err != nil {
		l.t.Fatal(err)
	}
	out := l.run("node", "client.mjs", string(text))
	if err := json.Unmarshal(out, into); err != nil {
		l.t.Fatalf("%s: %v", out, err)
	}
}

// request is a request that a library and an adapter verify.
type request struct {
	Kind   string            `json:"kind"`
	Secret string            `json:"secret"`
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
	At     int64             `json:"at"` // time of the verification, in Unix ms
	name   string
	// genuine: both must accept it. stricter: the library accepts it, and the adapter may refuse it.
	genuine, stricter bool
}

// service is a service whose requests are verified.
type service struct {
	kind, secret string
	receiver     channel.Receiver
	credential   map[string]string
	sign         func(body string, at time.Time) channel.Request
	bodies       []string
	times        bool // it signs a time, which the library may ignore
}

func key() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("a key of Discord's"))
	return ed25519.NewKeyFromSeed(seed[:])
}

func services(t *testing.T) []service {
	t.Helper()
	must := func(a channel.Adapter, err error) channel.Receiver {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return a.(channel.Receiver)
	}
	const secret = "a-secret_of-32-characters-xxxxxx"
	public := hex.EncodeToString(key().Public().(ed25519.PublicKey))
	return []service{
		{kind: "telegram", secret: secret, receiver: must(telegram.New(channel.Options{})), credential: map[string]string{"secret_token": secret},
			sign:   func(body string, _ time.Time) channel.Request { return telegramtest.Update(secret, body) },
			bodies: []string{`{"update_id":1}`, `{"update_id":2,"message":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"},"text":"ä 😀"}}`}},
		{kind: "slack", secret: secret, receiver: must(slack.New(channel.Options{})), credential: map[string]string{"signing_secret": secret},
			sign:   func(body string, at time.Time) channel.Request { return slacktest.Sign(secret, body, at) },
			bodies: []string{`{"type":"url_verification","challenge":"x"}`, "payload=%7B%7D&b=1", `{"text":"ä 😀\u0000"}`}, times: true},
		{kind: "github", secret: secret, receiver: must(github.New(channel.Options{})), credential: map[string]string{"webhook_secret": secret},
			sign:   func(body string, _ time.Time) channel.Request { return githubtest.Sign(secret, "issues", "guid", body) },
			bodies: []string{`{"action":"opened"}`, `{ "text":"ä 😀\\r\\n" }`}},
		{kind: "discord", secret: public, receiver: must(discord.New(channel.Options{})), credential: map[string]string{"public_key": public},
			sign:   func(body string, at time.Time) channel.Request { return discordtest.Sign(key(), body, at) },
			bodies: []string{`{"type":1}`, `{"type":2,"data":{"name":"ä 😀"}}`}, times: true},
	}
}

// spoilt returns variants of a request of a service: unchanged, at several times, and changed at every byte.
func (s service) spoilt(body string, signed time.Time) (list []request) {
	add := func(name string, r channel.Request, at time.Time, genuine, stricter bool) {
		header := map[string]string{}
		for k := range r.Header {
			header[http.CanonicalHeaderKey(k)] = r.Header.Get(k)
		}
		list = append(list, request{Kind: s.kind, Secret: s.secret, Header: header, Body: string(r.Body), At: at.UnixMilli(), name: name,
			genuine: genuine, stricter: stricter})
	}
	add("as it is", s.sign(body, signed), signed, true, false)
	add("four minutes later", s.sign(body, signed), signed.Add(4*time.Minute), true, false)
	add("six minutes later", s.sign(body, signed), signed.Add(6*time.Minute), !s.times, s.times)
	add("six minutes before", s.sign(body, signed), signed.Add(-6*time.Minute), !s.times, s.times)
	for name, other := range map[string]string{"a byte more": body + " ", "a byte less": body[:len(body)-1], "another": "x" + body[1:]} {
		if s.kind == "telegram" { // does not sign bodies
			break
		}
		r := s.sign(body, signed)
		r.Body = []byte(other)
		add("its body is "+name, r, signed, false, false)
	}
	for header := range s.sign(body, signed).Header {
		if strings.HasPrefix(header, "Content-") || strings.HasPrefix(header, "X-Github-") {
			continue
		}
		for name, change := range map[string]func(string) string{
			"empty": func(string) string { return "" }, "cut": func(v string) string { return v[:len(v)-1] },
			"longer": func(v string) string { return v + "0" }, "doubled": func(v string) string { return v + v },
			"another": func(v string) string { return v[:len(v)-1] + string(v[len(v)-1]^1) },
			"without the way": func(v string) string {
				_, rest, _ := strings.Cut(v, "=")
				return rest
			},
			"a word": func(string) string { return "now" },
		} {
			r := s.sign(body, signed)
			r.Header.Set(header, change(r.Header.Get(header)))
			add(header+" is "+name, r, signed, false, false)
		}
		r := s.sign(body, signed)
		r.Header.Del(header)
		add(header+" is missing", r, signed, false, false)
	}
	return list
}

// TestWithTheServicesLibraries is a single test, because it installs the libraries.
//
//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func TestWithTheServicesLibraries(t *testing.T) {
	t.Parallel()
	l := install(t)
	t.Run("no adapter takes what a library refuses, and both take what is genuine", l.requests)
	t.Run("what a library takes for its service may stand for it", l.doubles)
}

func (l *libraries) requests(t *testing.T) {
	signed := time.Unix(1_764_000_000, 0)
	all := services(t)
	var cases []request
	by := map[string]service{}
	for _, s := range all {
		by[s.kind] = s
		for _, body := range s.bodies {
			cases = append(cases, s.spoilt(body, signed)...)
		}
	}
	var verdicts []bool
	l.ask("judge", cases, &verdicts)
	if len(verdicts) != len(cases) {
		t.Fatalf("%d verdicts of %d requests", len(verdicts), len(cases))
	}
	taken := map[string]int{}
	for i, c := range cases {
		s := by[c.Kind]
		header := http.Header{}
		for k, v := range c.Header {
			header.Set(k, v)
		}
		err := s.receiver.Verify(channel.Request{Header: header, Body: []byte(c.Body)}, channel.Destination{Credential: s.credential},
			time.UnixMilli(c.At))
		ours, theirs := err == nil, verdicts[i]
		if ours && !theirs || theirs && !ours && !c.stricter || c.genuine && !ours {
			t.Errorf("%s, %s: the library says %v, the adapter %v", c.Kind, c.name, verdicts[i], err)
		}
		if verdicts[i] {
			taken[c.Kind]++
		}
	}
	for _, s := range all {
		if taken[s.kind] < 2*len(s.bodies) {
			t.Errorf("the library of %s takes %d requests: nothing is shown", s.kind, taken[s.kind])
		}
	}

	// GitHub's own library also signs.
	body := `{"action":"created","text":"ä 😀"}`
	var signature string
	l.ask("sign", map[string]string{"secret": by["github"].secret, "body": body}, &signature)
	r := channel.Request{Header: http.Header{"X-Hub-Signature-256": {signature}}, Body: []byte(body)}
	if err := by["github"].receiver.Verify(r, channel.Destination{Credential: by["github"].credential}, signed); err != nil {
		t.Errorf("what GitHub's library signs: %v", err)
	}
}

func (l *libraries) doubles(t *testing.T) {
	doubles := map[string]*chatfake.Server{
		"telegram": telegramtest.New(telegramtest.Options{}), "slack": slacktest.New(slacktest.Options{}),
		"github": githubtest.New(githubtest.Options{}).Server,
	}
	urls := map[string]string{}
	for kind, d := range doubles {
		s := httptest.NewServer(d)
		t.Cleanup(s.Close)
		t.Cleanup(d.Close)
		urls[kind] = s.URL
	}
	var got any
	l.ask("talk", urls, &got)
	var want any
	if err := json.Unmarshal([]byte(`{"telegram":{"me":"sandjet_bot","gone":400,"long":400},
		"slack":{"me":"sandjet","gone":"message_not_found","found":["other"]},"github":{"me":"octocat","found":["other"],"gone":404}}`), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the libraries heard %v, want %v", got, want)
	}
	for kind, d := range doubles {
		list := d.Messages()
		if len(list) != 1 || list[0].Text != "other" || list[0].Edits != 1 || len(list[0].Press) != 0 {
			t.Errorf("%s has %+v", kind, list)
		}
		if len(d.Marks()) == 0 {
			t.Errorf("%s has no reaction", kind)
		}
	}
}
