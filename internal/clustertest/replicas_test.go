package clustertest_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const account = schemas.AccountID("acct_1")

// mostPayload is the servers' limit of a message.
const mostPayload = 160 << 10

// largeText returns more bytes than a NATS message may have.
func largeText() string { return strings.Repeat("x", mostPayload+30<<10) }

func large() []byte { return []byte(`"` + largeText() + `"`) }

func newCall(id schemas.CallID, input []byte) schemas.Call {
	return schemas.Call{
		ID: id, Account: account, Conversation: "c1", Provider: "local", Workspace: "w", Sandbox: "s", Tool: "bash", Input: input,
		Accepted: time.Now().UTC(), Deadline: time.Now().Add(time.Hour).UTC(),
	}
}

// TestOnlyOneCommandChangesTheNumberOfCopies: the number of replicas is set when the streams are created, and only one command changes it
// later.
//
//guarantee:what-can-be-lost-by-durability
func TestOnlyOneCommandChangesTheNumberOfCopies(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "three servers: make long-cluster")
	c := natstest.StartCluster(t, natstest.ClusterOptions{MaxPayload: mostPayload, Streams: streams.Options{Shards: 1, Replicas: 1}})
	all := func(when string, want int) {
		t.Helper()
		for name, n := range c.Replicas() {
			if n != want {
				t.Errorf("%s: %s has %d copies and not %d", when, name, n, want)
			}
		}
	}
	first := c.Open(0)
	all("made", 1)
	more := c.Options(0)
	more.Replicas = 3
	if _, err := streams.Open(t.Context(), more); !errors.Is(err, schemas.ErrConflict) {
		t.Errorf("a log with one copy was opened by who wants three: %v", err)
	}
	all("asked for three", 1)
	if err := streams.SetReplicas(t.Context(), first, 3, nil); err != nil {
		t.Fatal(err)
	}
	all("set to three", 3)
	copies, err := streams.Copies(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range copies {
		if s.Compressed || len(s.Behind) > 0 || s.Leader == "" {
			t.Errorf("set to three: %+v", s)
		}
	}
	for _, asked := range []int{0, 1, 3} {
		o := c.Options(1)
		o.Replicas = asked
		b, err := streams.Open(t.Context(), o)
		if err != nil {
			t.Fatalf("asked for %d: %v", asked, err)
		}
		if err := streams.Calls.Publish(t.Context(), b, newCall(schemas.NewCallID(), large())); err != nil { // it makes an object store
			t.Errorf("asked for %d: %v", asked, err)
		}
		if b.Replicas() != 3 {
			t.Errorf("asked for %d: the log has %d copies", asked, b.Replicas())
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		all("opened again", 3)
	}
	before := c.Replicas()
	if len(before) < 15 {
		t.Errorf("these are not all streams: %v", before)
	}
	if err := streams.SetReplicas(t.Context(), first, 2, nil); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("two copies: %v", err)
	}
	if err := streams.SetReplicas(t.Context(), first, 5, nil); !errors.Is(err, schemas.ErrConflict) {
		t.Errorf("five copies on three servers: %v", err)
	}
	if !maps.Equal(before, c.Replicas()) {
		t.Errorf("a refused change has changed something: %v", c.Replicas())
	}
}
