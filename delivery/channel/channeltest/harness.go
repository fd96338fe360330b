package channeltest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Harness describes an adapter to the suite.
type Harness struct {
	New  func(channel.Options) (channel.Adapter, error)
	Fake func() *chatfake.Server
	// To is a chat in the double, with a route that names a message to answer.
	To channel.Destination
	// Place is the double's name of that chat.
	Place string
	// Elsewhere are routes of other destinations; BadRoutes are invalid routes.
	Elsewhere, BadRoutes []json.RawMessage
	// Secrets are the strings that no error may contain: the values of the credential, and secrets in the route.
	Secrets []string
	// Outcomes are the expected outcomes of faults for which they differ from the suite's defaults.
	Outcomes map[chatfake.Fault]channel.Outcome

	// Fetched is a file attached to an inbound message.
	Fetched Fetched

	// Reads are payloads from the service's documentation, with their expected meaning. Sign returns a request with a payload, signed as
	// the service signs it.
	Reads []Read
	Sign  func(body string, now time.Time) channel.Request
	// Stale is whether the service signs a time, so that an old request must be refused.
	Stale bool
	// Refused are functions that corrupt a valid request, by name. A corrupted request must be refused.
	Refused map[string]func(*channel.Request)
	// Lacking is To's credential without the secret that verifies requests.
	Lacking map[string]string
}

// Read is a payload and its expected meaning. Answer, Route and Why are compared only if Want sets them.
type Read struct {
	Name string
	Body string
	Want channel.Inbound
}

// fixture is an adapter connected to its double.
type fixture struct {
	Harness
	adapter channel.Adapter
	fake    *chatfake.Server
	http    *httptest.Server
}

func (h Harness) open(t *testing.T) *fixture {
	t.Helper()
	fake := h.Fake()
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	t.Cleanup(fake.Close)
	a, err := h.New(channel.Options{Base: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{Harness: h, adapter: a, fake: fake, http: server}
}

func (f *fixture) message() channel.Message {
	return channel.Message{Key: "dlv_01hzx.1", Text: "hello", Plain: "hello"}
}

func (f *fixture) send(t *testing.T, m channel.Message) channel.Receipt {
	t.Helper()
	r, err := f.adapter.Send(t.Context(), f.To, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// safe fails the test if an error is not a [channel.Error], or contains a secret.
func (f *fixture) safe(t *testing.T, err error) *channel.Error {
	t.Helper()
	e, ok := errors.AsType[*channel.Error](err)
	if !ok {
		t.Fatalf("the error %v (%T) does not say what is known of the message", err, err)
	}
	if e.Reason == "" {
		t.Errorf("%v has no reason", err)
	}
	for ; err != nil; err = errors.Unwrap(err) {
		f.clean(t, err.Error())
	}
	return e
}

func (f *fixture) clean(t *testing.T, text string) {
	t.Helper()
	for _, s := range f.Secrets {
		if strings.Contains(text, s) {
			t.Errorf("%q holds a secret", text)
		}
	}
}

// operations returns all operations by which the adapter sends requests.
func (f *fixture) operations(to channel.Destination) map[string]func(context.Context) error {
	ops := map[string]func(context.Context) error{"send": func(ctx context.Context) error {
		_, err := f.adapter.Send(ctx, to, f.message())
		return err
	}}
	if a, ok := f.adapter.(channel.Editor); ok {
		ops["edit"] = func(ctx context.Context) error { return a.Edit(ctx, to, "1", f.message()) }
	}
	if a, ok := f.adapter.(channel.Finder); ok {
		ops["find"] = func(ctx context.Context) error {
			_, _, err := a.Find(ctx, to, f.message().Key, time.Now().Add(-time.Hour))
			return err
		}
	}
	if a, ok := f.adapter.(channel.Typist); ok {
		ops["typing"] = func(ctx context.Context) error { return a.Typing(ctx, to) }
	}
	if a, ok := f.adapter.(channel.Reactor); ok {
		ops["react"] = func(ctx context.Context) error { return a.React(ctx, to) }
	}
	if a, ok := f.adapter.(channel.Checker); ok {
		ops["check"] = func(ctx context.Context) error {
			_, err := a.Check(ctx, to)
			return err
		}
	}
	if a, ok := f.adapter.(channel.Registrar); ok {
		ops["register"] = func(ctx context.Context) error { return a.Register(ctx, to, hook()) }
	}
	return ops
}
