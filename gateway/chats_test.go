package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// posts is a chat service whose requests are what the adapter makes of them, with the channel's secret in a header.
type posts struct{}

func (posts) Verify(r channel.Request, to channel.Destination, _ time.Time) error {
	if r.Header.Get("X-Secret") != to.Credential["hook"] || to.Credential["hook"] == "" {
		return schemas.Errorf(schemas.Denied, "the request is not from the service")
	}
	return nil
}

func (posts) Read(r channel.Request, _ channel.Destination) (channel.Inbound, error) {
	var in channel.Inbound
	if err := json.Unmarshal(r.Body, &in); err != nil {
		return in, schemas.Invalidf("body", "is not JSON")
	}
	in.Route = json.RawMessage(`{"chat":"` + in.Place + `","message":"` + in.Event + `"}`)
	return in, nil
}

func (posts) Simulate(to channel.Destination, said channel.Said, now time.Time) (channel.Request, error) {
	body, err := json.Marshal(channel.Inbound{
		Kind: channel.Text, Event: now.String(), Conversation: "tg:" + said.Place, Place: said.Place, User: said.User, Text: said.Text,
	})
	return channel.Request{Header: http.Header{"X-Secret": {to.Credential["hook"]}}, Body: body}, err
}

// chatEdge is a gateway with a channel of alice's.
type chatEdge struct {
	*edge
	channel schemas.ChatChannel
}

func openChat(t *testing.T, record string) *chatEdge {
	t.Helper()
	e := openWithChannels(t, func(o *gateway.Options) {
		o.ChatReceiver = func(kind string) (channel.Receiver, bool) { return posts{}, kind == "telegram" }
	})
	a := e.post("/v1/channels", `{"kind":"telegram","name":"support","places":["42"],"secrets":{"bot_token":"t","hook":"s3cret"}`+record+`}`)
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return &chatEdge{e, decode[schemas.ChatChannel](t, a)}
}

// write posts a message of a person, and returns the status.
func (e *chatEdge) write(event, text string) int {
	return e.postIn(channel.Inbound{Kind: channel.Text, Event: event, Text: text})
}

func (e *chatEdge) postIn(in channel.Inbound) int {
	e.t.Helper()
	in.Conversation, in.Place = "tg:42", "42"
	if in.User == "" {
		in.User = "7"
	}
	b, err := json.Marshal(in)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.raw(string(e.channel.ID), "s3cret", string(b)).status
}

func (e *chatEdge) raw(name, secret, body string) answer {
	e.t.Helper()
	return e.do(ask{
		method: http.MethodPost, path: "/webhooks/" + string(alice) + "/" + name, body: body, key: "-", header: http.Header{"X-Secret": {secret}},
	})
}

// turns are what the log has for harnesses.
func (e *chatEdge) turns() []schemas.FollowUp {
	e.t.Helper()
	var list []schemas.FollowUp
	for v, err := range streams.Turns.Replay(e.t.Context(), e.bus, "", schemas.Cursor{}) {
		if err != nil {
			e.t.Fatal(err)
		}
		list = append(list, v.Value)
	}
	return list
}

// said are the texts for the chat, in their order.
func (e *chatEdge) said() []schemas.ChatBody {
	e.t.Helper()
	var list []schemas.ChatBody
	asked := map[schemas.DeliveryID]bool{}
	for v, err := range streams.Deliveries.Replay(e.t.Context(), e.bus, "telegram", schemas.Cursor{}) {
		if err != nil {
			e.t.Fatal(err)
		}
		body, err := schemas.ChatBodyOf(v.Value)
		if err != nil || v.Value.ChannelID != e.channel.ID || len(v.Value.Route) == 0 {
			e.t.Errorf("%+v, %v", v.Value, err)
		}
		asked[v.Value.ID] = len(body.Buttons) > 0
		if body.Edit != nil && !asked[body.Edit.Delivery] {
			e.t.Errorf("%+v writes anew what was no question", body)
		}
		list = append(list, body)
	}
	return list
}

//guarantee:a-message-of-a-chat-counts-once
func TestMessagesOfChatsBeginTurns(t *testing.T) {
	e := openChat(t, "")
	agent := decode[map[string]any](t, e.post("/v1/accounts/me/agents", `{"name":"helper","config":{}}`))
	if a := e.patch("/v1/channels/"+string(e.channel.ID), fmt.Sprintf(`{"agent":%q}`, agent["id"])); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// The service posts a message again and again, at the same time too, and it counts once.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := e.write("1", "hello"); got != http.StatusOK {
				t.Errorf("status %d", got)
			}
		})
	}
	wg.Wait()
	turns := e.turns()
	if len(turns) != 1 {
		t.Fatalf("%d turns", len(turns))
	}
	f := turns[0]
	if f.Text != "hello" || string(f.Agent) != agent["id"] || f.Message == nil || f.Message.User != "7" ||
		f.Origin.ChannelID != e.channel.ID || f.Origin.Channel != "telegram" || f.Conversation != schemas.ChatName(e.channel.ID, "tg:42") {
		t.Errorf("%+v %+v %+v", f, f.Message, f.Origin)
	}
	events := func(of schemas.ConversationID) int {
		page, err := streams.ReadEvents(t.Context(), e.bus, alice, of, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, v := range page.Events {
			if v.Value.Type == schemas.MessageReceived {
				n++
			}
		}
		return n
	}
	if n := events(f.Conversation); n != 1 {
		t.Errorf("%d events", n)
	}

	// What the agent says goes to the chat, once, and nothing else that is added does.
	for range 2 {
		for _, body := range []string{
			`{"id":"m1","type":"message","data":{"text":"hi"}}`,
			`{"id":"m2","type":"message","data":{"role":"user","text":"x"}}`,
			`{"id":"m3","type":"agent.failed","data":{"error":"no model"}}`, `{"id":"m4","type":"message","data":{"text":{"an":"object"}}}`,
		} {
			if a := e.post("/v1/conversations/"+url.PathEscape(string(f.Conversation))+"/events", body); a.status > 299 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	}
	if said := e.said(); len(said) != 2 || said[0].Text != "hi" || said[1].Text != "⚠️ no model" {
		t.Errorf("%+v", said)
	}

	// Another conversation begins, and a message from before that is posted again stays where it was.
	for _, m := range [][2]string{{"2", "/new"}, {"2", "/new"}, {"1", "hello"}, {"3", "again"}} {
		if got := e.write(m[0], m[1]); got != http.StatusOK {
			t.Errorf("%s: %d", m[1], got)
		}
	}
	turns = e.turns()
	if len(turns) != 2 || turns[1].Text != "again" || turns[1].Conversation != f.Conversation+"#1" || events(f.Conversation) != 1 ||
		events(f.Conversation+"#1") != 1 {
		t.Errorf("%+v", turns)
	}
}

//guarantee:a-message-of-a-chat-counts-once
func TestWhatChatsMayNot(t *testing.T) {
	e := openChat(t, "")
	body := `{"Kind":"text","Event":"1","Conversation":"tg:42","Place":"42","Text":"/status"}`
	id := string(e.channel.ID)
	for name, c := range map[string]struct {
		channel, secret, body string
		want                  int
	}{
		"a wrong secret":   {id, "guess", body, http.StatusUnauthorized},
		"none":             {id, "", body, http.StatusUnauthorized},
		"no such channel":  {"chan_none", "s3cret", body, http.StatusNotFound},
		"no such name":     {"none", "s3cret", body, http.StatusNotFound},
		"no JSON":          {id, "s3cret", "{", http.StatusBadRequest},
		"far too large":    {id, "s3cret", strings.Repeat("x", 1<<20+1), http.StatusRequestEntityTooLarge},
		"by its name":      {"support", "s3cret", body, http.StatusOK},
		"by its kind":      {"telegram", "s3cret", body, http.StatusOK},
		"in another place": {id, "s3cret", strings.ReplaceAll(body, "42", "43"), http.StatusOK},
	} {
		if a := e.raw(c.channel, c.secret, c.body); a.status != c.want {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if said := e.said(); len(said) != 1 || !strings.Contains(said[0].Text, "Nothing runs here") {
		t.Errorf("%+v", said) // the same message by three names
	}
	if a := e.patch("/v1/channels/"+id, `{"disabled":true}`); a.status != http.StatusOK {
		t.Fatal(a.body)
	}
	if a := e.raw(id, "s3cret", body); a.status != http.StatusNotFound {
		t.Errorf("a disabled channel: %d", a.status)
	}
	if turns := e.turns(); len(turns) != 0 {
		t.Errorf("a channel without an agent begins turns: %+v", turns)
	}
}

func TestMadeUpMessagesAreTakenAsAllAre(t *testing.T) {
	e := openChat(t, `,"users":["7"]`)
	path := "/v1/channels/" + string(e.channel.ID) + "/simulate"
	for body, want := range map[string]string{
		`{"text":"/help","place":"42","user":"7"}`: `{"done":"command","conversation":"tg:42@` + string(e.channel.ID) + `"}`,
		`{"text":"/help","place":"43","user":"7"}`: `{"done":"ignore","reason":"its place is not one of the channel's"}`,
		`{"text":"/help","place":"42","user":"8"}`: `{"done":"ignore","reason":"its writer is not one of the channel's users"}`,
	} {
		if a := e.post(path, body); a.status != http.StatusOK || strings.TrimSpace(a.body) != want {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.body, want)
		}
	}
	if a := e.post(path, `{"place":"42"}`); a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := e.patch("/v1/channels/"+string(e.channel.ID), `{"secrets":{"hook":""}}`); a.status != http.StatusOK {
		t.Fatal(a.body)
	}
	if a := e.post(path, `{"text":"/help","place":"42","user":"7"}`); a.status != http.StatusUnauthorized {
		t.Errorf("without a secret: %d %s", a.status, a.body)
	}
	if said := e.said(); len(said) != 1 {
		t.Errorf("%+v", said)
	}
}

func TestChannelsAreSetUp(t *testing.T) {
	var told []string
	e := openWithChannels(t, func(o *gateway.Options) {
		o.ChatSetup = func(_ context.Context, c schemas.ChatChannel, hook *url.URL) (bool, error) {
			told = append(told, c.Secrets["bot_token"]+" "+hook.String())
			if c.Kind != "telegram" {
				return false, nil
			}
			if c.Secrets["bot_token"] == "revoked" {
				return false, schemas.Errorf(schemas.Denied, "telegram refuses: Unauthorized")
			}
			return true, nil
		}
	})
	add := func(body string) string {
		return "/v1/channels/" + string(decode[schemas.ChatChannel](t, e.post("/v1/channels", body)).ID)
	}
	works := add(`{"kind":"telegram","name":"a","secrets":{"bot_token":"t"}}`)
	slack, revoked := add(`{"kind":"slack","name":"b"}`), add(`{"kind":"telegram","name":"c","secrets":{"bot_token":"revoked"}}`)
	address := func(path string) string {
		return "https://x.example.com/base/webhooks/acct_alice/" + strings.TrimPrefix(path, "/v1/channels/")
	}
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{works, `{"url":"https://x.example.com/base/"}`, `"registered":true`, http.StatusOK},
		{slack, `{"url":"https://x.example.com/base"}`, `"registered":false`, http.StatusOK},
		{revoked, `{"url":"https://x.example.com/base"}`, "telegram refuses", http.StatusForbidden},
		{works, `{"url":"x.example.com"}`, `"field":"url"`, http.StatusBadRequest},
		{works, `{"url":"https://u:p@x.example.com"}`, `"field":"url"`, http.StatusBadRequest},
		{"/v1/channels/chan_none", `{"url":"https://x.example.com"}`, "there is no chat channel", http.StatusNotFound},
	} {
		a := e.post(c.path+"/setup", c.body)
		if a.status != c.status || !strings.Contains(a.body, c.want) || a.status == http.StatusOK && !strings.Contains(a.body, address(c.path)) {
			t.Errorf("%s %s: %d %s", c.path, c.body, a.status, a.body)
		}
	}
	if len(told) != 3 || told[0] != "t "+address(works) {
		t.Errorf("%q", told)
	}
}

//guarantee:a-message-of-a-chat-counts-once
func TestCommandsOfChats(t *testing.T) {
	e := openChat(t, `,"settings":{"run":"true"}`)
	e.work()
	conv := schemas.ChatName(e.channel.ID, "tg:42")
	last := func(event, text, want string) {
		t.Helper()
		before := len(e.said())
		for range 2 { // the answer to a command that is posted again is there once
			if got := e.write(event, text); got != http.StatusOK {
				t.Errorf("%s: %d", text, got)
			}
		}
		if said := e.said(); len(said) != before+1 || !strings.Contains(said[len(said)-1].Text, want) {
			t.Errorf("%s: %+v, want one more, with %q", text, said[before:], want)
		}
	}
	last("h", "/help", "`/run COMMAND`")
	last("r0", "/run", "Say what to run")
	last("r", "/run echo 1", "Started.")
	call, err := e.bus.Calls().Find(t.Context(), alice, schemas.CallID(schemas.MakeMessageID(e.channel.ID, "r")))
	if err != nil || call.Conversation != conv || call.Origin == nil || call.Origin.ChannelID != e.channel.ID ||
		!strings.Contains(string(call.Input), `"background":true`) {
		t.Errorf("%+v, %v", call, err)
	}
	if a := e.post("/v1/calls", fmt.Sprintf(`{"id":"h1","tool":"bash","input":{"command":"hang"},"conversation":%q}`, conv)); a.status != http.StatusAccepted {
		t.Fatal(a.body)
	}
	last("s", "/status", "bash `hang`")
	last("x", "/stop", "being stopped")
	if a := e.get("/v1/calls/h1?wait=60s"); !strings.Contains(a.body, string(schemas.StatusCancelled)) {
		t.Errorf("%s", a.body)
	}
}

//guarantee:a-message-of-a-chat-counts-once
func TestQuestionsInChats(t *testing.T) {
	e := openChat(t, `,"users":["7"]`)
	if e.write("1", "hello") != http.StatusOK {
		t.Fatal("not taken")
	}
	ask := func(id schemas.CallID) schemas.Approval {
		t.Helper()
		c := schemas.Call{
			ID: id, Account: alice, Conversation: schemas.ChatName(e.channel.ID, "tg:42"), Tool: schemas.ToolBash, Provider: "fake",
			Input: json.RawMessage("{\"command\":\"echo ```\"}"), Approval: schemas.NewApprovalID(), Accepted: e.bus.Now(),
			Deadline: e.bus.Now().Add(time.Hour), Timeout: schemas.Duration(time.Minute), Digest: "d",
		}
		if err := streams.Parked.Publish(t.Context(), e.bus, c); err != nil {
			t.Fatal(err)
		}
		p, err := lifecycle.EnsureApproval(t.Context(), e.bus, c)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := lifecycle.Ask(t.Context(), e.bus, p, e.bus.Absent()); err != nil {
				t.Fatal(err)
			}
		}
		return p.Value
	}
	a, b := ask("c1"), ask("c2")
	said := e.said()
	if len(said) != 2 || !strings.Contains(said[0].Text, "````\necho ```\n````") || len(said[0].Buttons) != 2 ||
		said[0].Buttons[0].Data != "approve:"+string(a.ID) {
		t.Fatalf("%+v", said)
	}
	state := func(of schemas.Approval) schemas.ApprovalState {
		p, err := lifecycle.FindApproval(context.Background(), e.bus, alice, of.ID)
		if err != nil {
			t.Fatal(err)
		}
		return p.Value.State
	}
	press := func(event, user, data string) {
		t.Helper()
		if got := e.postIn(channel.Inbound{Kind: channel.Pressed, Event: event, User: user, Data: data}); got != http.StatusOK {
			t.Errorf("%s: %d", data, got)
		}
	}
	e.write("l", "/approve")
	if list := e.said()[2].Text; !strings.Contains(list, "`"+string(a.ID)+"`: bash ```` echo ``` ````") || !strings.Contains(list, string(b.ID)) {
		t.Errorf("%s", list)
	}
	press("p1", "8", "approve:"+string(a.ID))
	if state(a) != schemas.ApprovalPending {
		t.Error("somebody else has allowed it")
	}
	press("p2", "7", "approve:"+string(a.ID))
	press("p2", "7", "approve:"+string(a.ID))
	if e.write("p3", "/deny "+string(b.ID)); state(a) != schemas.ApprovalApproved || state(b) != schemas.ApprovalDenied {
		t.Errorf("%s and %s", state(a), state(b))
	}
	press("p4", "7", "deny:"+string(a.ID))
	before := ask("c3")
	if e.write("n", "/new"); e.write("p5", "/approve "+string(before.ID)) != http.StatusOK || state(before) != schemas.ApprovalApproved {
		t.Errorf("a question from before /new is %s", state(before))
	}
	var texts []string
	for _, s := range e.said()[3:] {
		texts = append(texts, s.Text)
	}
	all := strings.Join(texts, "\n")
	if state(a) != schemas.ApprovalApproved || !strings.Contains(all, "✅ Approved") || !strings.Contains(all, "❌ Denied") ||
		!strings.Contains(all, "is approved already") || !strings.Contains(all, "by 7 in telegram") ||
		e.said()[3].Edit == nil || strings.Contains(e.said()[3].Edit.Text, "/approve") {
		t.Errorf("%s", all)
	}
}

// Who is not listened to gets the answer for such, and who is the other one.
func TestASenderWithoutListenersIsNotified(t *testing.T) {
	e := openChat(t, `,"users":["7"]`)
	for user, want := range map[string]string{"7": "soon", "8": "nobody listens"} {
		body, err := json.Marshal(channel.Inbound{Kind: channel.Text, Event: "tg:" + user, Conversation: "tg:42", Place: "42", User: user,
			Text: "hello", Answer: channel.Answer{Body: []byte("soon")}, Unheard: channel.Answer{Body: []byte("nobody listens")}})
		if err != nil {
			t.Fatal(err)
		}
		if a := e.raw(string(e.channel.ID), "s3cret", string(body)); a.status != http.StatusOK || a.body != want {
			t.Errorf("%s hears %d %q", user, a.status, a.body)
		}
	}
}

// A message with files waits for them on the log, and what is written after it waits behind it; all else begins at once.
//
//guarantee:a-message-of-a-chat-counts-once
func TestMessagesWithFilesWait(t *testing.T) {
	e := openChat(t, "")
	agent := decode[map[string]any](t, e.post("/v1/accounts/me/agents", `{"name":"helper","config":{}}`))
	if a := e.patch("/v1/channels/"+string(e.channel.ID), fmt.Sprintf(`{"agent":%q}`, agent["id"])); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	incoming := func() (list []schemas.Incoming) {
		t.Helper()
		for v, err := range streams.Deliveries.Replay(e.t.Context(), e.bus, schemas.InboxChannel, schemas.Cursor{}) {
			var in schemas.Incoming
			if err != nil || json.Unmarshal([]byte(v.Value.Body), &in) != nil {
				t.Fatalf("%+v %v", v, err)
			}
			list = append(list, in)
		}
		return list
	}
	send := func(event, text string, files ...channel.InboundFile) {
		t.Helper()
		for range 2 { // the service posts it again
			if got := e.postIn(channel.Inbound{Kind: channel.Text, Event: event, Text: text, Files: files}); got != http.StatusOK {
				t.Errorf("%s: %d", event, got)
			}
		}
	}
	send("1", "before")
	send("2", "see", channel.InboundFile{Name: "a", Type: "text/plain", Size: 3, Ref: "r"})
	send("3", "what is it?")
	send("4", "/status")
	list := incoming()
	if turns := e.turns(); len(turns) != 1 || len(list) != 2 || turns[0].Text != "before" {
		t.Fatalf("%d turns, %+v", len(turns), list)
	}
	file, after := list[0], list[1]
	if file.After != "" || file.Turn.Message.Files[0].Ref != "r" || after.After != file.Turn.ID || after.Turn.Text != "what is it?" {
		t.Errorf("%+v", list)
	}
	if said := e.said(); len(said) != 1 || !strings.Contains(said[0].Text, "Nothing runs here") {
		t.Errorf("a command waits: %+v", said)
	}
	// Once its files are there nothing waits any more, and what is posted again changes nothing.
	file.Turn.Message.Files[0].Path = "inbox/x/a"
	if err := lifecycle.Receive(t.Context(), e.bus, file.Turn, nil); err != nil {
		t.Fatal(err)
	}
	send("2", "see", channel.InboundFile{Name: "a", Ref: "r"})
	send("5", "and now?")
	if turns := e.turns(); len(turns) != 3 || turns[1].Message.Files[0].Path == "" || turns[2].Text != "and now?" || len(incoming()) != 2 {
		t.Errorf("%+v", turns)
	}
	// More than a message may have is cut, whatever it says.
	many := make([]channel.InboundFile, schemas.MaxChatFiles+5)
	for i := range many {
		many[i] = channel.InboundFile{Name: strings.Repeat("n", 10_000), Type: strings.Repeat("t", 10_000), Ref: strings.Repeat("r", 100_000)}
	}
	if got := e.postIn(channel.Inbound{Kind: channel.Text, Event: "6", Files: many[:4]}); got != http.StatusOK {
		t.Fatal(got)
	}
	if list := incoming(); len(list) != 3 || len(list[2].Turn.Message.Files) != 4 || list[2].Turn.Message.Files[0].Ref != "" {
		t.Errorf("%d", len(list))
	}
}
