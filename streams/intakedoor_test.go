package streams_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/natsauth"
	"github.com/sandjet/sandjet/streams/subjects"
)

const otherAccount schemas.AccountID = "acct_other"

// ack is the answer to a publisher.
type ack struct {
	Stream    string
	Seq       uint64
	Duplicate bool
	Error     *struct {
		Code        int
		ErrCode     int `json:"err_code"`
		Description string
	}
}

// tenants are two tenants of one embedded server.
func tenants(t *testing.T) (l *natstest.Log, me, you *nats.Conn) {
	t.Helper()
	l = natstest.Start(t, natstest.OnDisk(), natstest.Listen(
		natsauth.User{Name: "me", Password: "m", Account: account}, natsauth.User{Name: "you", Password: "y", Account: otherAccount}))
	dial := func(user, password string) *nats.Conn {
		nc, err := nats.Connect(l.Server.URL(), nats.UserInfo(user, password), nats.Timeout(within))
		testwait.OK(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	return l, dial("me", "m"), dial("you", "y")
}

// publishFor publishes for an account with headers, and returns what the log says.
func publishFor(t *testing.T, nc *nats.Conn, a schemas.AccountID, body string, headers ...string) (got ack) {
	t.Helper()
	m := nats.NewMsg(subjects.IntakeSubject(a))
	m.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	answer, err := nc.RequestMsg(m, within)
	testwait.OK(t, err)
	testwait.OK(t, json.Unmarshal(answer.Data, &got))
	return got
}

// TestMessageIDsAreAnAccountsOwn: the same message id of two accounts names two messages, whichever account used it first.
//
//guarantee:what-one-tenant-can-do-to-another
func TestMessageIDsAreAnAccountsOwn(t *testing.T) {
	t.Parallel()
	l, me, you := tenants(t)
	const id = "invoice-2026-0008"
	if got := publishFor(t, you, otherAccount, "yours", nats.MsgIdHdr, id); got.Duplicate || got.Error != nil {
		t.Fatalf("the first: %+v", got)
	}
	if got := publishFor(t, me, account, "mine", nats.MsgIdHdr, id); got.Duplicate || got.Error != nil || got.Stream != "INTAKE" {
		t.Errorf("of another account: %+v; want it stored", got)
	}
	if got := publishFor(t, me, account, "mine", nats.MsgIdHdr, id); !got.Duplicate {
		t.Errorf("of the same account: %+v; want a duplicate", got)
	}
	var bodies []string
	for e, err := range streams.Intake.Replay(t.Context(), l.Bus, "", schemas.Cursor{}) {
		testwait.OK(t, err)
		bodies = append(bodies, string(e.Value.Account)+":"+string(e.Value.Data))
	}
	if got := fmt.Sprint(bodies); got != "[acct_other:yours acct_test:mine]" {
		t.Errorf("stored: %s", got)
	}
}

// TestHeadersTellNothingOfOthers: headers that ask the log to compare something with its state are refused in any state, and the answer
// does not contain sequences.
//
//guarantee:what-one-tenant-can-do-to-another
func TestHeadersTellNothingOfOthers(t *testing.T) {
	t.Parallel()
	_, me, you := tenants(t)
	const secret = "invoice-2026-0007"
	for range 3 {
		publishFor(t, you, otherAccount, "yours")
	}
	publishFor(t, you, otherAccount, "yours", nats.MsgIdHdr, secret)
	for header, values := range map[string][2]string{
		nats.ExpectedLastMsgIdHdr:                     {secret, "x"},
		nats.ExpectedLastSeqHdr:                       {"4", "9"},
		nats.ExpectedLastSubjSeqHdr:                   {"0", "4"},
		"Nats-Expected-Last-Subject-Sequence-Subject": {"sandjet.intake.acct_other", "sandjet.calls.auto.acct_other"},
		"nats-expected-last-sequence":                 {"4", "9"},
		"Nats-TTL":                                    {"1h", "2h"},
		"Nats-Rollup":                                 {"sub", "all"},
		"Nats-Schedule":                               {"@at 2030-01-01T00:00:00Z", "@every 1h"},
		"Nats-Incr":                                   {"1", "2"},
		"Nats-Batch-Id":                               {"a", "b"},
	} {
		a, b := publishFor(t, me, account, "mine", header, values[0]), publishFor(t, me, account, "mine", header, values[1])
		if a.Error == nil || b.Error == nil || a.Error.Code != 400 || *a.Error != *b.Error || a.Seq != 0 || b.Seq != 0 {
			t.Errorf("%s: %+v %+v; want the same refusal", header, a, b)
		}
		if a.Error != nil && (strings.Contains(a.Error.Description, secret) || !strings.Contains(a.Error.Description, header)) {
			t.Errorf("%s: %q", header, a.Error.Description)
		}
	}
	if got := publishFor(t, me, account, "mine", nats.ExpectedStreamHdr, "INTAKE"); got.Error != nil || got.Seq < 1e12 {
		t.Errorf("its own: %+v; want it stored, and a time for a place", got)
	}
	if got := publishFor(t, me, account, "mine", nats.ExpectedStreamHdr, "CALLS"); got.Error == nil {
		t.Errorf("another stream: %+v", got)
	}
}

// TestPublicationsAreTakenAfterARestart: the door belongs to the server and is there whenever it is.
func TestPublicationsAreTakenAfterARestart(t *testing.T) {
	t.Parallel()
	l, me, _ := tenants(t)
	publishFor(t, me, account, "before")
	l.Restart()
	testwait.Eventually(t, "a publication is confirmed", func() bool {
		// One that comes between the door and its connection is lost, and its publisher asks again.
		_, err := me.Request(subjects.IntakeSubject(account), []byte("after"), 2*time.Second)
		return err == nil
	})
}

// TestTheDoorDoesNotWaitForALogThatCannotWrite: publications in flight are refused within a moment when the NATS API closes, so that the
// log can be started again.
//
//guarantee:a-log-that-could-not-write-continues-when-it-can
func TestTheDoorDoesNotWaitForALogThatCannotWrite(t *testing.T) {
	var o *streams.Options
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		taken := make(chan struct{}, 1)
		testwait.OK(t, b.Swallow(t.Context(), func() { taken <- struct{}{} }))
		answered := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			answered <- b.Request(ctx, subjects.IntakeSubject(account), []byte("x"))
		}()
		<-taken
		begun := time.Now()
		testwait.OK(t, o.Server.Restart(t.Context()))
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the restart waited for %s", took)
		}
		<-answered
	}, func(s *natstest.Settings) { o = &s.Log })
}

// TestADoorThatWasNeverOpenedEndsWithoutAnError: who ends it before it is connected has not met a fault.
func TestADoorThatWasNeverOpenedEndsWithoutAnError(t *testing.T) {
	t.Parallel()
	l := natstest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // it may still be connected
		testwait.OK(t, streams.IntakeDoor{Bus: l.Bus}.Run(ctx))
	}
}
