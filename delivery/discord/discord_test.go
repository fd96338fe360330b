package discord_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/channeltest"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
	"github.com/sandjet/sandjet/delivery/discord"
	"github.com/sandjet/sandjet/delivery/discord/discordtest"
)

const (
	token = "MTI5MDAwMDAwMDAwMDAwMDAwMQ.Gx0aaa.q7-secret_of_the_bot"
	place = "41771983423143937"
	guild = "41771983423143936"
)

func key() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = 7
	return ed25519.NewKeyFromSeed(seed)
}

func public() string {
	k, ok := key().Public().(ed25519.PublicKey)
	if !ok {
		panic("no key")
	}
	return hex.EncodeToString(k)
}

func to(route string) channel.Destination {
	return channel.Destination{Credential: map[string]string{"bot_token": token, "public_key": public()}, Route: json.RawMessage(route)}
}

func options() discordtest.Options { return discordtest.Options{Token: token, Key: key()} }

// common are the fields of all interactions in Discord's documentation.
const common = `"id":"786008729715212338","application_id":"775799577604522054","version":1,"token":"A_UNIQUE_TOKEN","guild_id":"` + guild +
	`","channel_id":"` + place + `","member":{"user":{"id":"53908232506183680","username":"Mason","global_name":"Mason S.","bot":false},
	"roles":["539082325061836999"]}`

func inbound(kind channel.InboundKind) channel.Inbound {
	return channel.Inbound{Kind: kind, Event: "discord:786008729715212338", Conversation: "discord:" + guild + ":" + place, Place: place,
		User: "53908232506183680", UserName: "Mason S.", Message: "786008729715212338"}
}

func harness() channeltest.Harness {
	ask := inbound(channel.Text)
	ask.Text, ask.Answer = "what is 2 + 2 ?", channel.Answer{Type: "application/json", Body: []byte(`{"type":5}`)}
	stop := inbound(channel.Text)
	stop.Text = "/stop"
	stop.Unheard = channel.Answer{Type: "application/json", Body: []byte(
		`{"data":{"content":"Nobody listens here: this channel or you are not among those that this bot is for.","flags":64},"type":4}`)}
	sub := inbound(channel.Text)
	sub.Text = "/run tests all 3 true"
	file := inbound(channel.Text)
	file.Text = "see"
	file.Files = []channel.InboundFile{{Name: "a.txt", Type: "text/plain", Size: 12, Ref: "https://cdn.discordapp.com/a.txt"}}
	thread := inbound(channel.Text)
	thread.Text, thread.Place = "so", "99"
	press := inbound(channel.Pressed)
	press.Data, press.Message = "y:1", "1290000000000000009"
	press.Answer = channel.Answer{Type: "application/json", Body: []byte(`{"type":6}`)}
	press.Route = []byte(`{"guild_id":"` + guild + `","channel_id":"` + place + `","message_id":"1290000000000000009"}`)
	return channeltest.Harness{
		New:   func(o channel.Options) (channel.Adapter, error) { return discord.New(o) },
		Fake:  func() *chatfake.Server { return discordtest.New(options()).Server },
		To:    to(`{"guild_id":"` + guild + `","channel_id":"` + place + `","message_id":"1290000000000000005"}`),
		Place: place,
		Fetched: channeltest.Fetched{File: channel.InboundFile{Name: "a", Ref: "https://cdn.discordapp.com/attachments/1/2/a.txt?ex=1"},
			Path: "/attachments/1/2/a.txt"},
		Elsewhere: []json.RawMessage{[]byte(`{"channel_id":"7"}`), []byte(`{"channel_id":"8","application_id":"1","interaction_id":"2",
			"interaction_token":"t"}`)},
		BadRoutes: []json.RawMessage{[]byte(`{"channel_id":7}`), []byte(`{"channel_id":"general"}`), []byte(`{"channel_id":"0"}`),
			[]byte(`{"channel_id":"7/../8"}`), []byte(`{"channel_id":"7","message_id":"x"}`), []byte(`{"channel_id":"7","interaction_token":"t"}`)},
		Secrets: []string{token, public()},
		Stale:   true,
		Sign:    func(body string, at time.Time) channel.Request { return discordtest.Sign(key(), body, at) },
		Lacking: map[string]string{"bot_token": token},
		Refused: map[string]func(*channel.Request){
			"another body": func(r *channel.Request) { r.Body = append([]byte(" "), r.Body...) },
			"another time": func(r *channel.Request) { r.Header.Set("X-Signature-Timestamp", "1764000001") },
			"another key": func(r *channel.Request) {
				*r = discordtest.Sign(make(ed25519.PrivateKey, 64), string(r.Body), time.Unix(1764000000, 0))
			},
			"no hexadecimal": func(r *channel.Request) { r.Header.Set("X-Signature-Ed25519", strings.Repeat("zz", 64)) },
			"a time that is none": func(r *channel.Request) {
				signature := ed25519.Sign(key(), append([]byte("now"), r.Body...))
				r.Header.Set("X-Signature-Timestamp", "now")
				r.Header.Set("X-Signature-Ed25519", hex.EncodeToString(signature))
			},
			"bits of the signature": func(r *channel.Request) {
				s := []byte(r.Header.Get("X-Signature-Ed25519"))
				s[0] ^= 1
				r.Header.Set("X-Signature-Ed25519", string(s))
			},
		},
		Reads: []channeltest.Read{
			{Name: "ask", Body: `{` + common + `,"type":2,"data":{"id":"1","name":"ask","type":1,
				"options":[{"type":3,"name":"text","value":"what is 2 + 2 ?"}]}}`, Want: ask},
			{Name: "stop", Body: `{` + common + `,"type":2,"data":{"id":"1","name":"stop","type":1}}`, Want: stop},
			{Name: "a command below a command", Body: `{` + common + `,"type":2,"data":{"id":"1","name":"run","type":1,
				"options":[{"type":1,"name":"tests","options":[{"type":3,"name":"a","value":"all"},{"type":4,"name":"b","value":3},
				{"type":5,"name":"c","value":true}]}]}}`, Want: sub},
			{Name: "a file", Body: `{` + common + `,"type":2,"data":{"id":"1","name":"ask","type":1,
				"options":[{"type":3,"name":"text","value":"see"},{"type":11,"name":"file","value":"5"},{"type":11,"name":"other","value":"6"}],
				"resolved":{"attachments":{"5":{"id":"5","filename":"a.txt","content_type":"text/plain","size":12,
				"url":"https://cdn.discordapp.com/a.txt"}}}}}`, Want: file},
			{Name: "a thread", Body: `{` + common + `,"type":2,"channel":{"id":"` + place + `","type":11,"parent_id":"99"},
				"data":{"id":"1","name":"ask","type":1,"options":[{"type":3,"name":"text","value":"so"}]}}`, Want: thread},
			{Name: "a button", Body: `{` + common + `,"type":3,"message":{"id":"1290000000000000009"},
				"data":{"component_type":2,"custom_id":"y:1"}}`, Want: press},
			{Name: "ping", Body: `{"id":"786008729715212338","application_id":"775799577604522054","type":1,"token":"t","version":1}`,
				Want: channel.Inbound{Kind: channel.Handshake, Answer: channel.Answer{Type: "application/json", Body: []byte(`{"type":1}`)}}},
			{Name: "ping of events", Body: `{"version":1,"application_id":"1234560123453231555","type":0}`,
				Want: channel.Inbound{Kind: channel.Handshake, Answer: channel.Answer{Status: 204}}},
			{Name: "an event", Body: `{"version":1,"application_id":"1234560123453231555","type":1,"event":{"type":"APPLICATION_AUTHORIZED"}}`,
				Want: channel.Inbound{Kind: channel.Ignored, Answer: channel.Answer{Status: 204}}},
			{Name: "outside of servers", Body: `{"id":"1","application_id":"2","type":2,"token":"t","channel_id":"3","user":{"id":"4"},
				"data":{"name":"ask","type":1}}`, Want: channel.Inbound{Kind: channel.Ignored, Answer: channel.Answer{Type: "application/json",
				Body: []byte(`{"data":{"content":"This works in servers alone.","flags":64},"type":4}`)}}},
			{Name: "a bot", Body: `{` + strings.Replace(common, `"bot":false`, `"bot":true`, 1) + `,"type":2,"data":{"name":"ask","type":1}}`,
				Want: channel.Inbound{Kind: channel.Ignored}},
			{Name: "a menu", Body: `{` + common + `,"type":2,"data":{"id":"1","name":"ask","type":3}}`, Want: channel.Inbound{Kind: channel.Ignored}},
			{Name: "an autocompletion", Body: `{` + common + `,"type":4,"data":{"name":"ask","type":1}}`, Want: channel.Inbound{Kind: channel.Ignored}},
		},
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	channeltest.Run(t, harness())
}

func TestDouble(t *testing.T) {
	t.Parallel()
	channeltest.Converse(t, harness().New, discordtest.Double())
}

// A signature of another implementation, with the first key of RFC 8032.
func TestASignatureOfAnotherLibrary(t *testing.T) {
	t.Parallel()
	a, err := discord.New(channel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := channel.Request{Header: map[string][]string{"X-Signature-Timestamp": {"1764000000"}, "X-Signature-Ed25519": {
		"6eda341fd6a4c7ad944f5940fbb408bc7110d3c0be6b2ec381ac489872b3e050e23dc2db2702c63c04eef4fa3b23e6d1f74d4934760b391317fdbedf7afa4302"}},
		Body: []byte(`{"id":"1","type":1}`)}
	d := channel.Destination{Credential: map[string]string{"public_key": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"}}
	if err := a.Verify(r, d, time.Unix(1_764_000_000, 0)); err != nil {
		t.Error(err)
	}
}

// world is a double whose clock is also the adapter's.
type world struct {
	adapter *discord.Adapter
	fake    *discordtest.Service

	mu  sync.Mutex
	now time.Time
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func open(t *testing.T, o discordtest.Options) *world {
	t.Helper()
	w := &world{now: time.Unix(1_764_000_000, 0)}
	o.Now, o.Key, o.Token = w.time, key(), token
	w.fake = discordtest.New(o)
	server := httptest.NewServer(w.fake)
	t.Cleanup(server.Close)
	var err error
	if w.adapter, err = discord.New(channel.Options{Base: server.URL, Now: w.time}); err != nil {
		t.Fatal(err)
	}
	return w
}

// command returns the destination of the answer to a command that a person has given just now.
func (w *world) command(t *testing.T) channel.Destination {
	t.Helper()
	d := to("")
	r := w.fake.Says(guild, place, "5", "ask", "hello")
	if err := w.adapter.Verify(r, d, w.time()); err != nil {
		t.Fatal(err)
	}
	in, err := w.adapter.Read(r, d)
	if err != nil || in.Text != "hello" {
		t.Fatalf("%+v %v", in, err)
	}
	d.Route = in.Route
	return d
}

func part(n string) channel.Message {
	return channel.Message{Key: "dlv." + n, Text: n, Plain: n, Reply: n == "1"}
}

func (w *world) texts() (list []string) {
	for _, m := range w.fake.Messages() {
		list = append(list, m.Text)
	}
	return list
}

func TestTheAnswerToACommand(t *testing.T) {
	t.Parallel()
	w := open(t, discordtest.Options{})
	d := w.command(t)
	one, err := w.adapter.Send(t.Context(), d, part("1"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.adapter.Send(t.Context(), d, part("1")); err != nil || again.ID != one.ID {
		t.Errorf("%+v %v", again, err)
	}
	if _, err := w.adapter.Send(t.Context(), d, part("2")); err != nil {
		t.Fatal(err)
	}
	list := w.fake.Messages()
	if len(list) != 2 || list[0].Nonce != "" || list[1].Nonce == "" || one.URL != "https://discord.com/channels/"+guild+"/"+place+"/"+one.ID {
		t.Errorf("%+v %+v", one, list)
	}
}

// The token of a command expires between two tries of one message. Whatever the outcome of the first, there is one message.
func TestATokenThatGetsOld(t *testing.T) {
	t.Parallel()
	for fault, outcome := range map[chatfake.Fault]channel.Outcome{
		chatfake.CommitThenDrop: channel.Ambiguous, chatfake.Drop: channel.Ambiguous, chatfake.CommitThenServerError: channel.Ambiguous,
		chatfake.TooMany: channel.Limited,
	} {
		for _, late := range []time.Duration{0, 6 * time.Minute, time.Hour} {
			w := open(t, discordtest.Options{})
			d := w.command(t)
			w.pass(10 * time.Minute)
			w.fake.Fail(fault)
			_, err := w.adapter.Send(t.Context(), d, part("1"))
			if channel.OutcomeOf(err) != outcome || strings.Contains(err.Error(), "interaction-token") {
				t.Errorf("%s: %v", fault, err)
			}
			w.pass(late)
			var r channel.Receipt
			r, err = w.adapter.Send(t.Context(), d, part("1"))
			if got := w.fake.Messages(); err != nil || len(got) != 1 || got[0].ID != r.ID || got[0].Text != "1" {
				t.Errorf("%s, %s later: %+v %v %+v", fault, late, r, err, got)
			}
		}
	}
}

// A failed search says nothing of a message, and nothing is sent after it.
func TestALookThatFails(t *testing.T) {
	t.Parallel()
	w := open(t, discordtest.Options{})
	d := w.command(t)
	w.pass(20 * time.Minute)
	w.fake.Fail(chatfake.ServerError)
	if _, err := w.adapter.Send(t.Context(), d, part("1")); channel.OutcomeOf(err) != channel.NotSent || len(w.fake.Messages()) != 0 {
		t.Errorf("%v", err)
	}
}

// Discord does not accept a token although it is young: the message is posted to the channel at once.
func TestATokenThatIsNotTaken(t *testing.T) {
	t.Parallel()
	w := open(t, discordtest.Options{})
	d := w.command(t)
	var route discord.Route
	if err := json.Unmarshal(d.Route, &route); err != nil {
		t.Fatal(err)
	}
	route.Sealed, route.Token = "", "other-token/"+place+"/1"
	d.Route, _ = json.Marshal(route) //nolint:errchkjson // of strings alone
	if _, err := w.adapter.Send(t.Context(), d, part("1")); err != nil || len(w.fake.Messages()) != 1 || w.fake.Messages()[0].Nonce == "" {
		t.Errorf("%v %+v", err, w.fake.Messages())
	}
}

// If the bot may not write to the channel, all parts are sent with the token, and errors say that the message had no key.
func TestAChannelThatTheBotDoesNotSee(t *testing.T) {
	t.Parallel()
	w := open(t, discordtest.Options{Hidden: []string{place}})
	d := w.command(t)
	for _, n := range []string{"1", "2"} {
		if _, err := w.adapter.Send(t.Context(), d, part(n)); err != nil {
			t.Fatal(err)
		}
	}
	w.fake.Fail(chatfake.None, chatfake.CommitThenDrop)
	_, err := w.adapter.Send(t.Context(), d, part("3"))
	if e, ok := errors.AsType[*channel.Error](err); !ok || e.Outcome != channel.Ambiguous || !e.Keyless {
		t.Errorf("%+v", err)
	}
	if got := strings.Join(w.texts(), " "); got != "1 2 3" {
		t.Errorf("%q", got)
	}
	id := w.fake.Messages()[1].ID
	if err := w.adapter.Edit(t.Context(), d, id, part("two")); err != nil || strings.Join(w.texts(), " ") != "1 two 3" {
		t.Errorf("%v %q", err, w.texts())
	}
	w.pass(20 * time.Minute)
	_, err = w.adapter.Send(t.Context(), d, part("4"))
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Refused || e.Credential || !strings.Contains(e.Reason, "Missing Access") {
		t.Errorf("%+v", err)
	}
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	w := open(t, discordtest.Options{PerChannel: 2, Per: 5 * time.Second})
	d := to(`{"channel_id":"` + place + `"}`)
	one, err := w.adapter.Send(t.Context(), d, part("a"))
	if err != nil || one.Rest != 0 {
		t.Fatalf("%+v %v", one, err)
	}
	two, err := w.adapter.Send(t.Context(), d, part("b"))
	if err != nil || two.Rest != 5*time.Second {
		t.Fatalf("%+v %v", two, err)
	}
	_, err = w.adapter.Send(t.Context(), d, part("c"))
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Limited || e.After != 5*time.Second || e.Of != channel.PerDestination {
		t.Errorf("%+v", err)
	}
}

func TestNoncesAreForgotten(t *testing.T) {
	t.Parallel()
	w := open(t, discordtest.Options{})
	d := to(`{"channel_id":"` + place + `"}`)
	for _, late := range []time.Duration{0, w.adapter.Profile().Window - time.Second} {
		w.pass(late)
		if _, err := w.adapter.Send(t.Context(), d, part("a")); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.fake.Messages()) != 1 {
		t.Errorf("%+v", w.fake.Messages())
	}
	if n := w.fake.Messages()[0].Nonce; len(n) > 25 {
		t.Errorf("a nonce %q", n)
	}
}

func TestAnotherApplicationsKey(t *testing.T) {
	t.Parallel()
	w := open(t, discordtest.Options{})
	d := to(`{}`)
	d.Credential["public_key"] = strings.Repeat("ab", 32)
	if _, err := w.adapter.Check(t.Context(), d); channel.OutcomeOf(err) != channel.Refused || !strings.Contains(err.Error(), "public_key") {
		t.Errorf("%v", err)
	}
}

func FuzzRead(f *testing.F) {
	a, err := discord.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range harness().Reads {
		f.Add([]byte(c.Body))
	}
	f.Fuzz(func(t *testing.T, body []byte) { channeltest.ReadAny(t, a, channel.Request{Body: body}, to(`{}`)) })
}

// The token in the route of a command is encrypted: only the bot can decrypt it, and no error contains it.
func TestTokensOfCommandsAreSealed(t *testing.T) {
	t.Parallel()
	fake := discordtest.New(options())
	t.Cleanup(fake.Close)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	a, err := discord.New(channel.Options{Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	read := func() channel.Inbound {
		t.Helper()
		in, err := a.Read(fake.Says(guild, place, "53908232506183680", "ask", "hello"), to("{}"))
		if err != nil || bytes.Contains(in.Route, []byte("interaction-token")) || !bytes.Contains(in.Route, []byte("interaction_sealed")) {
			t.Fatalf("%s, %v", in.Route, err)
		}
		return in
	}
	in := read()
	if _, err := a.Send(t.Context(), to(string(in.Route)), channel.Message{Key: "k1", Text: "hi", Plain: "hi", Reply: true}); err != nil {
		t.Fatal(err)
	}
	list := fake.Messages()
	if len(list) != 1 || list[0].Text != "hi" || list[0].Nonce != "" {
		t.Errorf("the place of the answer is not filled: %+v", list)
	}
	spoilt := bytes.Replace(read().Route, []byte(`"interaction_sealed":"`), []byte(`"interaction_sealed":"x`), 1)
	if _, err := a.Send(t.Context(), to(string(spoilt)), channel.Message{Key: "k2", Text: "ho", Plain: "ho", Reply: true}); err != nil {
		t.Fatal(err)
	}
	if list = fake.Messages(); len(list) != 2 || list[1].Nonce == "" {
		t.Errorf("what cannot be opened goes into the channel: %+v", list)
	}
}

//guarantee:a-message-reaches-its-chat-once-or-says-that-it-may-be-a-repeat
func FuzzAnswers(f *testing.F) { channeltest.FuzzAnswers(f, harness()) }

func FuzzRoute(f *testing.F) {
	a, err := discord.New(channel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"channel_id":"7","application_id":"1","interaction_id":"2","interaction_token":"t"}`))
	f.Fuzz(func(t *testing.T, route []byte) { channeltest.RouteAny(t, a, route) })
}
