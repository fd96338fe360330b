package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// natsTenant is an account with its own NATS client, connected by an issued credential.
type natsTenant struct {
	t       *testing.T
	id      schemas.AccountID
	key     string
	conn    *nats.Conn
	refused chan error
}

// TestNoSubjectReachesAnotherAccount has a whole gateway and two accounts with issued credentials on one server: one tries everything on
// the other, whose own calls and events continue meanwhile.
//
//guarantee:tenants-are-isolated
func TestNoSubjectReachesAnotherAccount(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := startNode(t, t.TempDir())
	id, err := n.dir.identity()
	if err != nil {
		t.Fatal(err)
	}
	free := address{"127.0.0.1", 0}
	err = n.openServer(ctx, serverFlags{NATSListen: free, Durability: "1s"}, tenantFlags{}, id)
	if err == nil {
		err = n.openBus(ctx, natsFlags{}, topologyFlags{Replicas: 1, Shards: 1})
	}
	if err == nil {
		err = n.openRecords(ctx, secretsFlags{}, natsFlags{})
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := n.openListener(ctx, free, "listen", false)
	if err == nil {
		err = n.addGateway(ctx, gatewayFlags{MaxWait: time.Second}, operatorFlags{}, tenantFlags{}, insecureFlag{}, id, l)
	}
	if err != nil {
		t.Fatal(err)
	}
	background(t, n.run)
	anna, bert := n.joinNATS(t), n.joinNATS(t)

	// All that anna receives.
	heard := make(chan *nats.Msg, 256)
	inbox := anna.conn.NewInbox()
	for _, subject := range []string{"sandjet.live." + string(anna.id) + ".>", inbox, inbox + ".>"} {
		if _, err := anna.conn.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	anna.flush()
	accepted := 0
	hers := func(m *nats.Msg) { // what she may receive: that her calls were accepted, and what is said below
		t.Helper()
		var e schemas.Event
		err := json.Unmarshal(m.Data, &e)
		if e.Type == schemas.CallAccepted {
			accepted++
		}
		if err != nil || m.Subject != subjects.LiveSubject(anna.id, "c_anna") || e.Type != schemas.CallAccepted &&
			e.Type != schemas.Message || accepted > 3 {
			t.Errorf("she heard on %s: %s", m.Subject, m.Data)
		}
	}
	said := 0
	works := func() { // her own is there at that moment
		t.Helper()
		said++
		text := fmt.Sprintf("hers-%d", said)
		e := schemas.NewEvent(schemas.Call{ID: "x", Account: anna.id, Conversation: "c_anna"}, schemas.Message, string(anna.id)+"."+text,
			time.Now(), map[string]any{"text": text})
		if err := streams.Events.Publish(ctx, n.bus, e); err != nil {
			t.Fatal(err)
		}
		for m := next(t, heard); ; m = next(t, heard) {
			if hers(m); strings.Contains(string(m.Data), `"text":"`+text+`"`) {
				return
			}
		}
	}
	answer := struct {
		ID    schemas.CallID
		Error *schemas.Error
	}{}
	body := `{"conversation":"c_anna","tool":"bash","input":{"command":"echo hers"}}`
	m := anna.request("sandjet.rpc.call."+string(anna.id), body)
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.ID == "" || answer.Error != nil {
		t.Fatalf("her own call: %s, %v", m.Data, err)
	}
	if m := anna.request("sandjet.calls.auto."+string(anna.id), body); !strings.Contains(string(m.Data), `"stream":"INTAKE"`) {
		t.Errorf("her own publication: %s", m.Data)
	}
	works()

	a, token := string(anna.id), "YQ"
	publishes := []string{
		"sandjet.calls.auto." + a, "sandjet.rpc.call." + a, "sandjet.rpc.approvals." + a, "sandjet.calls.local." + a + "." + token,
		"sandjet.calls._parked." + a + "." + token,
		"sandjet.events.00." + a + "." + token, "sandjet.live." + a + "." + token, "sandjet.jobs." + a + "." + token,
		"sandjet.turns." + a + "." + token + ".x",
		"sandjet.deliveries.webhook." + a + "." + token, "sandjet.timers.deliveries." + a, "sandjet.dead.x." + a + "." + token,
		"sandjet.cancels." + a + "." + token,
		"sandjet.cancelled." + a, "sandjet.control.x", "sandjet.inbox." + a + ".x", "sandjet.reply." + a + ".x", inbox, "_INBOX.x",
		"$KV.records.account." + a, "$O.payloads.C.x", "$JS.API.STREAM.LIST", "$JS.API.STREAM.PURGE.CALLS", "$JS.API.STREAM.DELETE.KV_records",
		"$JS.API.STREAM.MSG.GET.CALLS", "$JS.API.DIRECT.GET.KV_records.$KV.records.account." + a,
		"$JS.API.CONSUMER.CREATE.EVENTS_00", "$JS.ACK.CALLS.x.1.1.1.1.0",
		"$SYS.REQ.USER.AUTH", "$SYS.REQ.SERVER.PING", "$SRV.PING", "$SYS.REQ.USER.INFO", "anything", "sandjet",
	}
	for _, subject := range publishes {
		bert.tries(subject, func() error { return bert.conn.Publish(subject, []byte(body)) })
		if m, err := bert.conn.Request(subject, []byte(body), 50*time.Millisecond); err == nil {
			t.Errorf("%s answers: %s", subject, m.Data)
		}
		bert.forget()
	}
	works()
	for _, subject := range []string{
		">", "*.>", "sandjet.>", "sandjet.calls.>", "sandjet.calls.auto." + a, "sandjet.rpc.call." + a, "sandjet.rpc.approvals." + a,
		"sandjet.rpc.>", "sandjet.events.>", "sandjet.live.>", "sandjet.live.*.*",
		"sandjet.live." + a + ".>", "sandjet.live." + a + "." + token, "sandjet.inbox.>", "sandjet.inbox." + a + ".>",
		"sandjet.reply.>", "sandjet.reply." + a + ".>",
		"sandjet.jobs.>", "sandjet.turns.>", "sandjet.deliveries.>", "sandjet.dead.>", "sandjet.control.>", "sandjet.cancels.>",
		"$JS.>", "$JS.API.>", "$JS.EVENT.>",
		"$KV.>", "$O.>", "$SYS.>", "$SYS.REQ.USER.AUTH", "$SRV.>", "_R_.>", "_GR_.>", "_INBOX_" + a + ".>",
	} {
		var sub *nats.Subscription
		bert.tries(subject, func() (err error) { sub, err = bert.conn.SubscribeSync(subject); return err })
		_ = sub.Unsubscribe() // it was never there
	}
	spy, err := bert.conn.SubscribeSync("_INBOX.>") // allowed, and his own account's alone
	if err != nil {
		t.Fatal(err)
	}
	bert.flush()
	works()
	anna.request("sandjet.rpc.call."+a, body) // answered to an inbox of hers

	// By what he may do, he has the server and the gateway send to her: as a reply subject, in the header,
	// in the body.
	his := "sandjet.calls.auto." + string(bert.id)
	for _, to := range []string{inbox, "sandjet.live." + a + "." + token, "sandjet.reply." + a + ".x", "sandjet.calls.auto." + a,
		"$JS.API.STREAM.PURGE.CALLS"} {
		if err := bert.conn.PublishRequest(his, to, []byte(`{"conversation":"c_bert","tool":"bash","input":{"command":"x"}}`)); err != nil {
			t.Fatal(err)
		}
		if err := bert.conn.PublishRequest("sandjet.rpc.call."+string(bert.id), to,
			[]byte(`{"conversation":"c_bert","tool":"bash","input":{"command":"x"}}`)); err != nil {
			t.Fatal(err)
		}
		m := nats.NewMsg(his)
		m.Header.Set("Sandjet-Reply", to)
		m.Data = []byte(`{"conversation":"c_bert","tool":"bash","input":{"command":"x"}}`)
		if err := bert.conn.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for name, in := range map[string]string{
		"account":      `{"account":"` + a + `","conversation":"c_anna","tool":"bash","input":{"command":"x"}}`,
		"conversation": `{"conversation":"c_anna","tool":"bash","input":{"command":"x"}}`,
		"id":           `{"id":"` + string(answer.ID) + `","conversation":"c_anna","tool":"bash","input":{"command":"other"}}`,
	} {
		m := bert.request("sandjet.rpc.call."+string(bert.id), in)
		var got struct{ Error *schemas.Error }
		if err := json.Unmarshal(m.Data, &got); err != nil || (got.Error != nil) != (name == "account") {
			t.Errorf("%s: %s", name, m.Data)
		}
		bert.request(his, in)
	}
	works()
	bert.flush()
	anna.flush()
	for range len(heard) {
		hers(<-heard)
	}
	for {
		m, err := spy.NextMsg(10 * time.Millisecond)
		if err != nil {
			break
		}
		if strings.Contains(string(m.Data), string(answer.ID)) || strings.Contains(string(m.Data), "hers") {
			t.Errorf("he heard on %s: %s", m.Subject, m.Data)
		}
	}
	// Her call is still hers, and as it was.
	if _, err := client.New(n.endpoint.URL, anna.key).Get(ctx, answer.ID); err != nil {
		t.Errorf("her call: %v", err)
	}
	for _, key := range []string{bert.key, id.Key} {
		if s, err := client.New(n.endpoint.URL, key).Get(ctx, answer.ID); err == nil && s.Conversation != "c_anna" {
			t.Errorf("her call is seen as %+v", s)
		}
	}
}

// joinNATS makes an account and connects it.
func (n *node) joinNATS(t *testing.T) *natsTenant {
	t.Helper()
	ctx := t.Context()
	d, key, err := n.records.Accounts.Add(ctx, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	cl := client.New(n.endpoint.URL, key)
	cred, err := cl.Accounts().NATSCredential(ctx, client.Me, 0)
	if err != nil || cred.User != d.ID || cred.URL != n.server.URL() || time.Until(cred.Expires) > time.Hour {
		t.Fatalf("%+v, %v", cred, err)
	}
	a := &natsTenant{t: t, id: schemas.AccountID(d.ID), key: key, refused: make(chan error, 64)}
	a.conn, err = nats.Connect(cred.URL, nats.UserInfo(cred.User, cred.Password),
		nats.CustomInboxPrefix(cred.InboxPrefix), nats.Timeout(time.Minute),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { a.refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.conn.Close)
	return a
}

// tries calls do, which sends something on a subject, and fails unless the NATS server refuses it.
func (a *natsTenant) tries(subject string, do func() error) {
	a.t.Helper()
	a.forget()
	if err := do(); err != nil {
		a.t.Fatal(err)
	}
	a.flush()
	select {
	case err := <-a.refused:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			a.t.Errorf("%s: %v", subject, err)
		}
	case <-time.After(20 * time.Second):
		a.t.Errorf("%s is allowed", subject)
	}
}

// forget drops what was refused before.
func (a *natsTenant) forget() {
	a.flush()
	for len(a.refused) > 0 {
		<-a.refused
	}
}

func (a *natsTenant) flush() {
	a.t.Helper()
	if err := a.conn.FlushTimeout(time.Minute); err != nil {
		a.t.Fatal(err)
	}
}

// request sends a request, again and again until a server process subscribes to the subject and replies.
func (a *natsTenant) request(subject, body string) *nats.Msg {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := a.conn.RequestWithContext(ctx, subject, []byte(body))
		if err == nil {
			return m
		}
		if !errors.Is(err, nats.ErrNoResponders) || ctx.Err() != nil {
			a.t.Fatalf("%s: %v", subject, err)
		}
		<-tick.C
	}
}

func next(t *testing.T, c <-chan *nats.Msg) *nats.Msg {
	t.Helper()
	select {
	case m := <-c:
		return m
	case <-time.After(time.Minute):
		t.Fatal("nothing comes")
		return nil
	}
}
