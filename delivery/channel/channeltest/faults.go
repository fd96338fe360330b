package channeltest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// outcome returns the expected outcome of a fault: the harness's, or the default.
func (f *fixture) outcome(fault chatfake.Fault) channel.Outcome {
	if o, ok := f.Outcomes[fault]; ok {
		return o
	}
	switch fault { //nolint:exhaustive // of all other faults the outcome is ambiguous
	case chatfake.TooMany, chatfake.TooManyBare:
		return channel.Limited
	case chatfake.Unauthorized, chatfake.Redirect:
		return channel.Refused
	case chatfake.ErrorBody:
		if f.fake.Words.ErrorBody != nil {
			return channel.Refused
		}
	}
	return channel.Ambiguous
}

// waits reports whether a request with that fault ends only with its context.
func waits(fault chatfake.Fault) bool {
	return fault == chatfake.Hang || fault == chatfake.CommitThenHang
}

func faults(t *testing.T, f *fixture) {
	for _, fault := range chatfake.Faults() {
		if waits(fault) {
			continue // has a test of its own
		}
		before := len(f.fake.Messages())
		f.fake.Fail(fault)
		m := f.message()
		m.Key += "." + string(fault)
		requests := f.fake.Requests()
		_, err := f.adapter.Send(t.Context(), f.To, m)
		if err == nil {
			t.Errorf("%s: there is no error", fault)
			continue
		}
		e := f.safe(t, err)
		if e.Outcome != f.outcome(fault) {
			t.Errorf("%s: %v, want %s", fault, e, f.outcome(fault))
		}
		if f.fake.Requests() != requests+1 {
			t.Errorf("%s: %d requests", fault, f.fake.Requests()-requests)
		}
		if fault == chatfake.TooMany && (e.After < chatfake.FaultWait || e.After > 2*chatfake.FaultWait || e.Of == "") {
			t.Errorf("%s: %+v", fault, e)
		}
		if fault == chatfake.Unauthorized && !e.Credential {
			t.Errorf("%s: %+v", fault, e)
		}
		arrived := len(f.fake.Messages()) > before
		if arrived != fault.Commits() || arrived && e.Outcome != channel.Ambiguous {
			t.Errorf("%s: arrived %v, and it is %s", fault, arrived, e.Outcome)
		}
		f.again(t, m, fault)
	}
}

// again repeats a message with an unknown outcome as the profile prescribes, and checks that it exists once.
func (f *fixture) again(t *testing.T, m channel.Message, fault chatfake.Fault) {
	t.Helper()
	after := len(f.fake.Messages())
	want := after
	if !fault.Commits() {
		want++
	}
	switch f.adapter.Profile().Once {
	case channel.OnceByKey:
		f.send(t, m)
	case channel.OnceByLook:
		a, ok := f.adapter.(channel.Finder)
		if !ok {
			t.Fatal("it is no Finder")
		}
		_, found, err := a.Find(t.Context(), f.To, m.Key, time.Now().Add(-time.Hour))
		if err != nil || found != fault.Commits() {
			t.Errorf("%s: found %v, %v", fault, found, err)
		}
		if !found {
			f.send(t, m)
		}
	default:
		return
	}
	if got := len(f.fake.Messages()); got != want {
		t.Errorf("%s: there are %d messages after the second try, want %d", fault, got, want)
	}
}

func secrets(t *testing.T, f *fixture) {
	for name, op := range f.operations(f.To) {
		for _, fault := range chatfake.Faults() {
			if waits(fault) {
				continue
			}
			f.fake.Choose(func(*http.Request) chatfake.Fault { return fault })
			if err := op(t.Context()); err != nil {
				_ = f.safe(t, err)
			} else if fault != chatfake.ErrorBody && fault != chatfake.CommitThenTruncate && fault != chatfake.CommitThenMalformed {
				t.Errorf("%s: %s is no error", name, fault)
			}
		}
	}
}

func hangs(t *testing.T, f *fixture) {
	for _, fault := range []chatfake.Fault{chatfake.Hang, chatfake.CommitThenHang} {
		ctx, cancel := context.WithCancel(t.Context())
		f.fake.Choose(func(*http.Request) chatfake.Fault {
			cancel() // the request has arrived
			return fault
		})
		_, err := f.adapter.Send(ctx, f.To, f.message())
		if err == nil || f.safe(t, err).Outcome != channel.Ambiguous {
			t.Errorf("%s: %v", fault, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	requests := f.fake.Requests()
	if _, err := f.adapter.Send(ended, f.To, f.message()); err == nil || f.safe(t, err).Outcome != channel.NotSent {
		t.Errorf("before it began: %v", err)
	}
	if f.fake.Requests() != requests {
		t.Error("a request was sent")
	}
}
