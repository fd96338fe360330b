package streams

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/subjects"
)

func TestJudge(t *testing.T) {
	busy := RetryAfter(time.Minute, errors.New("busy"))
	for name, tc := range map[string]struct {
		err     error
		stopped bool
		attempt uint64
		want    verdict
	}{
		"done":                {nil, false, 1, verdict{verdictAck, 0}},
		"done though stopped": {nil, true, 1, verdict{verdictAck, 0}},
		"stopped":             {errors.New("x"), true, 99, verdict{verdictNak, 0}},
		"again":               {busy, false, 1, verdict{verdictNak, time.Minute}},
		"again, the last":     {busy, false, 20, verdict{verdictDead, 0}},
		"short":               {schemas.ErrUnavailable, false, 3, verdict{verdictNak, 4 * time.Second}},
		"short, capped":       {schemas.ErrUnavailable, false, 19, verdict{verdictNak, 8 * time.Second}},
		"terminated":          {Terminate(schemas.ErrUnavailable), false, 1, verdict{verdictDead, 0}},
		"wrong":               {schemas.ErrInvalid, false, 1, verdict{verdictDead, 0}},
		"cancelled":           {context.Canceled, false, 1, verdict{verdictNak, time.Second}},
	} {
		if got := judge(tc.err, tc.stopped, tc.attempt, 20); got != tc.want {
			t.Errorf("%s: %+v; want %+v", name, got, tc.want)
		}
	}
}

func FuzzDecodeNotice(f *testing.F) {
	f.Add([]byte(`{"stream":"CALLS","consumer":"w-local","stream_seq":3,"deliveries":25}`))
	f.Add([]byte(`{"stream":"a.b","stream_seq":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := decodeNotice("", nil, b); err == nil && (!subjects.IsToken(n.Stream) || !subjects.IsToken(n.Consumer) || n.Seq == 0) {
			t.Errorf("accepted %+v", n)
		}
	})
}

func FuzzDeadLetter(f *testing.F) {
	f.Add([]byte(`{"id":"CALLS.1","stream":"CALLS","payload":"eA=="}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeJSON[schemas.DeadLetter]("", nil, b)
		if err != nil {
			return
		}
		if s, err := deadPlace(nil, d); err == nil && subjects.AccountOf(s) != d.Account && d.Account != subjects.NoAccount {
			t.Errorf("subject %q of account %q", s, d.Account)
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Fuzz(func(t *testing.T, k, v string) {
		h := intake.CleanHeader(nats.Header{k: {v}, "Nats-Msg-Id": {"x"}})
		if Headers(h).Get("nats-msg-id") != "" {
			t.Error("the server's header is still there")
		}
		if validTrace(v) && (len(v) < 55 || v[2] != '-') {
			t.Errorf("%q is no trace", v)
		}
	})
}

func FuzzSubjects(f *testing.F) {
	f.Add("a.b:c-d", "c_1/@x")
	f.Fuzz(func(t *testing.T, id, conv string) {
		if got, err := subjects.Untoken(subjects.Token(id)); err != nil || got != id {
			t.Errorf("%q came back as %q, %v", id, got, err)
		}
		if s := subjects.Call("local", "acct_a", schemas.CallID(id)); subjects.AccountOf(s) != "acct_a" {
			t.Errorf("subject %q", s)
		}
		if n := subjects.ShardOf(schemas.ConversationID(conv), 16); n < 0 || n > 15 {
			t.Errorf("shard %d", n)
		}
	})
}

func FuzzBatchAck(f *testing.F) {
	f.Add([]byte(`{"stream":"CALLS","seq":64,"batch":"x","count":64}`), true)
	f.Add([]byte(`{"error":{"code":400,"err_code":10071}}`), true)
	f.Add([]byte(nil), false)
	f.Fuzz(func(t *testing.T, b []byte, end bool) {
		const size = 64
		if seq, err := parseBatchAck(b, end, size); err == nil && end && seq < size {
			t.Errorf("confirmed at %d", seq)
		}
	})
}

// What was put aside is counted on by what the server vouches for, and by nothing that a publisher can say.
func FuzzAside(f *testing.F) {
	f.Add("3", "7", "sandjet.timers.calls.x", uint64(9), uint64(1))
	f.Add("-3", "0", "", uint64(9), uint64(2))
	f.Add("99999999999999999999", "x", "s", uint64(1), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, aside, first, scheduler string, seq, delivered uint64) {
		m := &message{Msg: nats.NewMsg("s"), meta: &nats.MsgMetadata{NumDelivered: delivered, Sequence: nats.SequencePair{Stream: seq}}}
		m.Header.Set(headerAside, aside)
		m.Header.Set(headerFirst, first)
		if scheduler != "" {
			m.Header.Set(jetstream.SchedulerHeader, scheduler)
		}
		if m.attempt() < int(min(delivered, 1<<30)) || m.first() > seq {
			t.Fatalf("attempt %d of %d deliveries, first place %d of %d", m.attempt(), delivered, m.first(), seq)
		}
		if scheduler == "" && (m.first() != seq || m.attempt() != int(min(delivered, 1<<30))) {
			t.Fatalf("a publisher's headers count: attempt %d, first place %d", m.attempt(), m.first())
		}
	})
}
