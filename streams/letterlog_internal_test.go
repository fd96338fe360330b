package streams

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/subjects"
)

// TestDeadLettersAreLoggedOnceAMinute: an account whose messages all fail has one line for each code, another has its own, and those that were
// left out are counted.
//
//guarantee:bounds
func TestDeadLettersAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := &letterLog{logger: slog.New(slog.NewTextHandler(&text, nil))}
		dead := func(a schemas.AccountID, code schemas.Code) {
			m := &message{Msg: nats.NewMsg(subjects.Call("local", a, "call_1")), meta: &nats.MsgMetadata{Stream: streamCalls}}
			l.log(m, "w-local", schemas.Errorf(code, "no"))
		}
		for range 1000 {
			dead("acct_1", schemas.Invalid)
			dead("acct_2", schemas.Invalid)
			dead("acct_2", schemas.Internal)
		}
		if n := strings.Count(text.String(), "\n"); n != 3 || strings.Contains(text.String(), "left_out") {
			t.Fatalf("%d lines, want 3:\n%.1000s", n, text.String())
		}
		time.Sleep(time.Minute)
		text.Reset()
		dead("acct_1", schemas.Invalid)
		if !strings.Contains(text.String(), "left_out=999") {
			t.Errorf("after a minute: %s", text.String())
		}
		l.logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		text.Reset()
		dead("acct_1", schemas.Invalid)
		if !strings.Contains(text.String(), "message dead-lettered") {
			t.Errorf("for debugging: %s", text.String())
		}
	})
}
