package natsauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
	"github.com/sandjet/sandjet/streams/subjects"
)

// outside is a NATS server as an operator runs one: from the documented file, which asks us about users.
type outside struct {
	url  string
	bus  *streams.Bus
	keys natsauth.CalloutKeys
}

// startOutside starts one. With accounts named, each takes the place of the one that all tenants share.
func startOutside(t *testing.T, accounts ...string) outside {
	t.Helper()
	text := testwait.Must(natsauth.GenerateCalloutKeys())(t)
	keys := testwait.Must(natsauth.ParseCalloutKeys(text))(t)
	text = testwait.Must(os.ReadFile(filepath.Join("..", "..", "deploy", "nats", "nats.conf")))(t)
	config := strings.NewReplacer(
		"$SANDJET_NATS_PASSWORD", "role-password", "$SANDJET_SYS_PASSWORD", "sys-password",
		"$SANDJET_CALLOUT_ISSUER", keys.Issuer(), "$SANDJET_CALLOUT_XKEY", keys.XKey(),
	).Replace(string(text))
	if len(accounts) > 0 {
		const begin, end = "  TENANTS {", "\n  }\n"
		head, rest, found := strings.Cut(config, begin)
		body, tail, found2 := strings.Cut(rest, end)
		if !found || !found2 {
			t.Fatal("the configuration has no account for tenants")
		}
		for _, a := range accounts {
			head += "  " + a + " {" + body + end
		}
		config = strings.ReplaceAll(head+tail, "TENANTS", strings.Join(accounts, ", "))
	}
	conf := filepath.Join(t.TempDir(), "nats.conf")
	testwait.OK(t, os.WriteFile(conf, []byte(config), 0o600))
	o, err := server.ProcessConfigFile(conf)
	testwait.OK(t, err)
	o.Host, o.Port, o.HTTPPort, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir(), true, true
	s, err := server.NewServer(o)
	testwait.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(within) {
		t.Fatal("the server does not start")
	}
	out := outside{url: s.ClientURL(), keys: keys}
	out.bus = testwait.Must(streams.Open(t.Context(), streams.Options{URL: out.url, User: "sandjet", Password: "role-password"}))(t)
	t.Cleanup(func() { testwait.OK(t, out.bus.Close(context.WithoutCancel(t.Context()))) })
	startPart(t, streams.IntakeDoor{Bus: out.bus}.Run)
	role, err := nats.Connect(out.url, nats.UserInfo("sandjet", "role-password"), nats.Timeout(within))
	testwait.OK(t, err)
	t.Cleanup(role.Close)
	testwait.Eventually(t, "publications are taken", func() bool {
		_, err := role.Request(subjects.IntakeSubject("acct_nobody"), []byte("{}"), within)
		return err == nil
	})
	return out
}

// TestAServerOutsideAsksUsAboutTenants: with the documented configuration, over a real listener.
//
//guarantee:tenants-are-isolated
func TestAServerOutsideAsksUsAboutTenants(t *testing.T) {
	t.Parallel()
	out, ctx := startOutside(t), t.Context()
	var passwords sync.Map
	passwords.Store(string(account), "m")
	passwords.Store(string(other), "y")
	passwords.Store("no.account", "z")
	var until sync.Map
	run := startPart(t, natsauth.Callout{
		Bus: out.bus, Keys: out.keys,
		Tenants: func(name, password string) (schemas.AccountID, time.Time, bool) {
			p, known := passwords.Load(name)
			end, _ := until.LoadOrStore(name, time.Time{})
			return schemas.AccountID(name), end.(time.Time), known && p == password
		},
	}.Run)
	dial := func(user schemas.AccountID, password string, more ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(out.url, append(more, nats.UserInfo(string(user), password),
			nats.CustomInboxPrefix(natsauth.AccessOf(user).InboxPrefix), nats.Timeout(within))...)
	}
	var me, you *nats.Conn
	testwait.Eventually(t, "the server asks us", func() (in bool) {
		var err error
		me, err = dial(account, "m")
		return err == nil
	})
	t.Cleanup(me.Close)
	you, err := dial(other, "y")
	testwait.OK(t, err)
	t.Cleanup(you.Close)
	for user, password := range map[schemas.AccountID]string{account: "y", other: "", "acct_none": "m", "no.account": "z", "sandjet": "m"} {
		if nc, err := dial(user, password); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s with %q: %v", user, password, err)
			nc.Close()
		}
	}

	// Its own ways: a call with the log's confirmation, a question, its events.
	live, err := me.SubscribeSync("sandjet.live.acct_test.>")
	testwait.OK(t, err)
	m, err := me.Request(subjects.IntakeSubject(account), []byte("hello"), within)
	testwait.OK(t, err)
	if !strings.Contains(string(m.Data), `"stream":"INTAKE"`) {
		t.Errorf("the confirmation of a call: %s", m.Data)
	}
	startPart(t, func(ctx context.Context) error {
		return out.bus.Serve(ctx, streams.ServiceOptions{Name: "sandjet", Version: "1.0.0",
			Subjects: []string{subjects.RPCCall + ".*", subjects.RPCApprovals + ".*"}},
			func(_ context.Context, r streams.Request) ([]byte, error) { return []byte(r.Account), nil })
	})
	for user, nc := range map[schemas.AccountID]*nats.Conn{account: me, other: you} {
		for _, subject := range []string{subjects.RPCCall, subjects.RPCApprovals} {
			testwait.Eventually(t, "the service answers", func() bool {
				m, err := nc.Request(subject+"."+string(user), nil, time.Second)
				return err == nil && string(m.Data) == string(user)
			})
		}
	}
	inbox := natsauth.AccessOf(account).InboxPrefix + ".mine"
	mine, err := me.SubscribeSync(inbox)
	testwait.OK(t, err)
	testwait.OK(t, me.Flush())
	testwait.OK(t, out.bus.Reply(ctx, account, inbox, []byte("for you")))
	if m, err := mine.NextMsg(within); err != nil || string(m.Data) != "for you" {
		t.Errorf("its inbox: %v %v", m, err)
	}
	testwait.OK(t, streams.Events.Publish(ctx, out.bus, eventOf(callOf("a"), "1", schemas.CallOutput, schemas.OutputData{Text: "x"})))
	if m, err := live.NextMsg(within); err != nil || !strings.HasPrefix(m.Subject, "sandjet.live.acct_test.") {
		t.Errorf("its events: %v %v", m, err)
	}

	// A session ends with the password that began it, and with the key.
	closed := make(chan struct{})
	for left := 2 * time.Second; ; left *= 2 { // it may end before a busy machine has begun it
		until.Store(string(other), time.Now().Add(left))
		short, err := dial(other, "y", nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
		if err == nil {
			defer short.Close()
			break
		}
		if left > within {
			t.Fatal(err)
		}
	}
	select {
	case <-closed:
	case <-time.After(within):
		t.Error("a session outlives the end of its password")
	}
	passwords.Delete(string(other))
	if _, err := dial(other, "y"); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("after the key was taken back: %v", err)
	}
	run()
}

// startPart runs a part until the function it returns, or the end of the test, ends it without an error.
func startPart(t *testing.T, run func(context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		testwait.OK(t, <-done)
	})
	t.Cleanup(end)
	return end
}

// TestConfirmationsGoWhereTheirPublisherMay: a reply subject is answered by the server, whichever client named it. Nothing of the log is
// reached by that, and nothing of other tenants where each has an account.
//
//guarantee:tenants-are-isolated
func TestConfirmationsGoWhereTheirPublisherMay(t *testing.T) {
	t.Parallel()
	out := startOutside(t, "tenant_acct_test", "tenant_acct_other")
	startPart(t, natsauth.Callout{
		Bus: out.bus, Keys: out.keys, Account: "tenant_{account}",
		Tenants: func(name, _ string) (schemas.AccountID, time.Time, bool) {
			return schemas.AccountID(name), time.Time{}, true
		},
	}.Run)
	dial := func(user schemas.AccountID) (nc *nats.Conn) {
		testwait.Eventually(t, "the server asks us", func() bool {
			var err error
			nc, err = nats.Connect(out.url, nats.UserInfo(string(user), "x"),
				nats.CustomInboxPrefix(natsauth.AccessOf(user).InboxPrefix), nats.Timeout(within))
			return err == nil
		})
		t.Cleanup(nc.Close)
		return nc
	}
	me, you := dial(account), dial(other)
	if _, err := nats.Connect(out.url, nats.UserInfo("acct_elsewhere", "x"), nats.Timeout(within)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a tenant without an account in the configuration: %v", err)
	}
	role, err := nats.Connect(out.url, nats.UserInfo("sandjet", "role-password"), nats.Timeout(within))
	testwait.OK(t, err)
	t.Cleanup(role.Close)
	heard := make(chan *nats.Msg, 64)
	for nc, subjects := range map[*nats.Conn][]string{
		role: {"sandjet.calls.>", "sandjet.live.>", "sandjet.reply.>", "sandjet.rpc.>", "$JS.API.STREAM.PURGE.>"},
		you:  {"sandjet.live.acct_other.>", "sandjet.reply.acct_other.>"},
	} {
		for _, subject := range subjects {
			_, err := nc.ChanSubscribe(subject, heard)
			testwait.OK(t, err)
		}
		testwait.OK(t, nc.Flush())
	}
	replies := []string{
		"$JS.API.STREAM.PURGE.INTAKE", "sandjet.calls.auto.acct_other", "sandjet.calls.local.acct_other.YQ",
		"sandjet.live.acct_other.x", "sandjet.reply.acct_other.x", "sandjet.rpc.call.acct_other",
	}
	for _, reply := range replies {
		testwait.OK(t, me.PublishRequest(subjects.IntakeSubject(account), reply, []byte(reply)))
	}
	_, err = me.Request(subjects.IntakeSubject(account), []byte("last"), within) // confirmed after all others
	testwait.OK(t, err)
	testwait.OK(t, errors.Join(role.Flush(), you.Flush()))
	own := 0
	for range len(heard) {
		if m := <-heard; m.Subject == subjects.IntakeSubject(account) {
			own++
		} else {
			t.Errorf("on %s came %q", m.Subject, m.Data)
		}
	}
	if own != len(replies)+1 {
		t.Errorf("%d of its own calls came", own)
	}
}

func TestCalloutKeysAreReadAndNotShown(t *testing.T) {
	t.Parallel()
	text := string(testwait.Must(natsauth.GenerateCalloutKeys())(t))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	signs, opens := lines[1], lines[3]
	k := testwait.Must(natsauth.ParseCalloutKeys([]byte(text)))(t)
	if k.Issuer()[0] != 'A' || k.XKey()[0] != 'X' || !strings.Contains(text, k.Issuer()) || !strings.Contains(text, k.XKey()) {
		t.Errorf("the public keys are %s", k)
	}
	for _, shown := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k), string(testwait.Must(json.Marshal(k))(t))} {
		if strings.Contains(shown, signs) || strings.Contains(shown, opens) || !strings.Contains(shown, k.Issuer()) {
			t.Errorf("it shows itself as %s", shown)
		}
	}
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"the signing key alone": {signs, true},
		"spaces and comments":   {"# a\n\n  " + signs + " \r\n", true},
		"nothing":               {"", false},
		"the sealing key alone": {opens, false},
		"a key twice":           {signs + "\n" + signs, false},
		"a public key":          {k.Issuer(), false},
		"half a key":            {signs[:30], false},
		"a user's key":          {"SUAOUIHJSHNQ36CAVGRNQTBNFZBTPJGYD2CE7WQPRZWZSJUQG4HB7CXIMY", false},
		"too much":              {signs + strings.Repeat("\n", 5000), false},
	} {
		_, err := natsauth.ParseCalloutKeys([]byte(tc.text))
		if (err == nil) != tc.ok || err != nil && (!errors.Is(err, schemas.ErrInvalid) || strings.Contains(err.Error(), signs[:30])) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (natsauth.Callout{}).Run(t.Context()); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("without keys: %v", err)
	}
}

func FuzzParseCalloutKeys(f *testing.F) {
	f.Add([]byte("# a comment\nSAAFYOZ5U4UBAJMHPITSSLONNFWHJUDLDKZLOKCCRREM7VUTYHE5N7XWEY"))
	f.Add([]byte("SX\nSA"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if k, err := natsauth.ParseCalloutKeys(text); err == nil && k.Issuer() == "" {
			t.Error("keys without one that signs")
		}
	})
}
