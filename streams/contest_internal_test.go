package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/acks"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/intake"
	"github.com/sandjet/sandjet/streams/natserr"
)

// undecidedAnswers are the answers of a leader that has proposed an earlier message and has no answer of a majority yet.
func openBus(t *testing.T) *Bus {
	t.Helper()
	testwait.ForRealTime(t)
	s, err := StartServer(t.Context(), embedded.Options{DataDir: t.TempDir(), Port: -1}, fair.Shares{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	b, err := Open(t.Context(), Options{Server: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.WithoutCancel(t.Context())) })
	return b
}

func undecidedAnswers() []string {
	return []string{
		`{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"FAKE","seq":0}`,
		`{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"FAKE","seq":0}`,
	}
}

// leader answers what is published below a subject: for the first writes that an earlier one is in process, then final.
func leader(t *testing.T, b *Bus, subject, undecided string, first int64, final string) *atomic.Int64 {
	t.Helper()
	var asked atomic.Int64
	sub, err := b.live.Subscribe(subject, func(m *nats.Msg) {
		answer := final
		if asked.Add(1) <= first {
			answer = undecided
		}
		_ = m.Respond([]byte(answer))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.live.FlushWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	return &asked
}

//guarantee:what-was-confirmed-is-found-at-every-server-of-a-cluster
func TestAWriteThatMeetsOneInProcessIsSentAgain(t *testing.T) {
	t.Parallel()
	b := openBus(t)
	kv, err := b.js.KeyValue(t.Context(), string(Records))
	if err != nil {
		t.Fatal(err)
	}
	b.buckets.Store("fake", kv) // it has no stream: the leader of the test answers
	k := &Bucket[string]{bus: b, row: bucketRow{config: jetstream.KeyValueConfig{Bucket: "fake"}}}
	for i, answer := range undecidedAnswers() {
		for name, write := range map[string]func(key string) error{
			"publish": func(key string) error {
				_, err := b.acks.Publish(t.Context(), nats.NewMsg("$KV.fake."+key))
				return err
			},
			"put":             func(key string) error { _, err := k.Put(t.Context(), key, "v"); return err },
			"update":          func(key string) error { _, err := k.Update(t.Context(), key, "v", 3); return err },
			"create":          func(key string) error { _, err := k.Create(t.Context(), key, "v", 0); return err },
			"delete":          func(key string) error { return k.Delete(t.Context(), key) },
			"delete_revision": func(key string) error { return k.DeleteRevision(t.Context(), key, 3) },
		} {
			key := fmt.Sprintf("%s_%d", name, i)
			asked := leader(t, b, "$KV.fake."+key, answer, 2, `{"stream":"FAKE","seq":17}`)
			if err := write(key); err != nil || asked.Load() != 3 {
				t.Errorf("%s ended with %v after %d messages, want success with the third", key, err, asked.Load())
			}
		}
	}
}

func TestAWriteInProcessIsNeverAConflict(t *testing.T) {
	t.Parallel()
	b := openBus(t)
	for i, answer := range undecidedAnswers() {
		subject := fmt.Sprintf("test.inprocess.%d", i)
		leader(t, b, subject, answer, 1<<40, "")
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := b.writer.store(ctx, nats.NewMsg(subject))
		cancel()
		if !errors.Is(err, schemas.ErrUnavailable) && !errors.Is(err, schemas.ErrTimeout) {
			t.Errorf("a write that is never decided ended with %v, want unavailable", err)
		}
		if _, err := acks.ParseConfirmation([]byte(answer)); schemas.CodeOf(natserr.Coded("publish", err)) != schemas.Unavailable {
			t.Errorf("%s is %v", answer, natserr.Coded("publish", err))
		}
	}
}

func TestAContestEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Contest
		begun, tries := time.Now(), 0
		for {
			if err := c.Again(t.Context()); err != nil {
				if !errors.Is(err, schemas.ErrUnavailable) {
					t.Errorf("it ended with %v", err)
				}
				break
			}
			tries++
		}
		if took := time.Since(begun); took > requestWithin || took < requestWithin/2 || tries > 500 {
			t.Errorf("%d tries in %v", tries, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := new(Contest).Again(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a loop whose context ended goes on: %v", err)
		}
	})
}

func TestAPublisherIsNotToldThatItsIdIsInProcess(t *testing.T) {
	t.Parallel()
	for _, answer := range undecidedAnswers() {
		_, err := acks.ParseConfirmation([]byte(answer))
		if got := intake.RefusalOf(err); got.Code != http.StatusServiceUnavailable {
			t.Errorf("%s is handed on as %+v, want 503", answer, got)
		}
	}
}
