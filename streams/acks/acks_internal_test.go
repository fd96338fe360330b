package acks

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/natserr"
)

func connect(t *testing.T) (*Publisher, *nats.Conn) {
	t.Helper()
	testwait.ForRealTime(t)
	s := testwait.Must(embedded.Start(t.Context(), embedded.Options{DataDir: t.TempDir(), Port: -1}))(t)
	t.Cleanup(s.Shutdown)
	conn := testwait.Must(nats.Connect("", s.InProcess()...))(t)
	t.Cleanup(conn.Close)
	return testwait.Must(New(conn))(t), conn
}

func TestAnAnswerGoesToItsPublishAndALateOneToNobody(t *testing.T) {
	t.Parallel()
	a, conn := connect(t)
	asked := make(chan *nats.Msg, 2)
	if _, err := conn.ChanSubscribe("test.acks.>", asked); err != nil {
		t.Fatal(err)
	}
	first, err := a.send(nats.NewMsg("test.acks.first"), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.wait(t.Context(), first); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a publish without an answer ended with %v", err)
	}
	second, err := a.send(nats.NewMsg("test.acks.second"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Error("a receipt is not used again")
	}
	for _, answer := range []string{`{"stream":"LATE","seq":1}`, `{"stream":"HERE","seq":2}`} { // to the first, to the second
		if err := (<-asked).Respond([]byte(answer)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.wait(t.Context(), second)
	if err != nil || got.Seq != 2 {
		t.Errorf("the second publish got %+v, %v; want its own answer", got, err)
	}
	if len(a.waits) != 0 {
		t.Errorf("%d publishes are waited for still", len(a.waits))
	}
}

func TestAPublishEndsWithItsContextAndWithItsConnection(t *testing.T) {
	t.Parallel()
	a, conn := connect(t)
	if _, err := conn.SubscribeSync("test.acks.silent"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := a.Publish(ctx, nats.NewMsg("test.acks.silent")); !errors.Is(err, context.Canceled) {
		t.Errorf("a publish whose context ended: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, a.Close)
	begun := time.Now()
	if _, err := a.Publish(t.Context(), nats.NewMsg("test.acks.silent")); !errors.Is(err, nats.ErrConnectionClosed) ||
		time.Since(begun) > direct.RequestTime/2 {
		t.Errorf("a publish whose connection was closed: %v after %v", err, time.Since(begun))
	}
	if _, err := a.Publish(t.Context(), nats.NewMsg("test.acks.silent")); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("a publish after that: %v", err)
	}
}

func TestAPublishWithoutAStreamIsRepeatedAndThenRefused(t *testing.T) {
	t.Parallel()
	a, _ := connect(t)
	begun := time.Now()
	_, err := a.Publish(t.Context(), nats.NewMsg("test.acks.unheard"))
	if !errors.Is(err, jetstream.ErrNoStreamResponse) || time.Since(begun) < noStreamTries*NoStreamPause {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}

func TestWhatTheLogSaysOfAPublishIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Confirmation{
		`{"stream":"CALLS","seq":17}`:                                         {Seq: 17},
		`{"stream":"EVENTS_00","seq":18,"duplicate": true}`:                   {Seq: 18, Duplicate: true},
		`{"stream":"CALLS","domain":"hub","seq":19}`:                          {Seq: 19},
		`{"stream":"CALLS","seq":20,"batch":"x","count":2}`:                   {Seq: 20},
		`{"stream":"CALLS", "seq":18446744073709551615, "duplicate": false }`: {Seq: 1<<64 - 1},
	} {
		if got, err := ParseConfirmation([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	_,
		err := ParseConfirmation([]byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"CALLS","seq":0}`))
	if !natserr.Is(err, natserr.WrongLastSequence) {
		t.Errorf("a refusal is read as %v", err)
	}
	for _, text := range []string{"", "{}", `{"seq":1}`, `{"stream":"CALLS","seq":-1}`, `{"stream":"CALLS","seq":1`, "+OK"} {
		if got, err := ParseConfirmation([]byte(text)); err == nil {
			t.Errorf("%q is taken for the confirmation %+v", text, got)
		}
	}
}

// FuzzConfirmation holds the short way of reading a confirmation to the long one.
func FuzzConfirmation(f *testing.F) {
	for _, s := range []string{`{"stream":"A","seq":1}`, `{"stream":"A","seq":1,"duplicate": true}`, `{"stream":"A","seq":01}`,
		`{"stream":"\u0041","seq":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, usual := usualConfirmation(data)
		if !usual || !json.Valid(data) { // control characters in a name, which no stream has
			_, _ = ParseConfirmation(data)
			return
		}
		var want struct {
			Seq       uint64 `json:"seq"`
			Duplicate bool   `json:"duplicate"`
		}
		if err := json.Unmarshal(data, &want); err != nil || got.Seq != want.Seq || got.Duplicate != want.Duplicate {
			t.Errorf("%q: %+v, want %+v (%v)", data, got, want, err)
		}
	})
}
