package crashtest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// TestALostTailIsReportedToEveryReader: the log comes back as it was some seconds ago, as after a power cut, and continues from there.
// Clients that were attached, and one that comes back later with a cursor of a lost event, receive a gap and miss nothing of what
// follows.
//
//guarantee:a-conversation-has-no-holes
//guarantee:pauses-cuts-and-full-disks
func TestALostTailIsReportedToEveryReader(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "servers that lose the end of their log; package gateway/replay has the readers alone")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	c := startPair(ctx, t)
	server, store := c.roles[0], filepath.Join(c.data, "nats")
	const conv, kept, lost, later = "tail-1", 15, 10, 20
	appendEvents := func(from, to int) {
		for n := from; n < to; n++ {
			c.append(ctx, t, conv, n)
		}
	}
	appendEvents(0, kept)
	image := filepath.Join(t.TempDir(), "image")
	server.signal(t, syscall.SIGSTOP) // so that the image is of one moment
	err := os.CopyFS(image, os.DirFS(store))
	server.signal(t, syscall.SIGCONT)
	if err != nil {
		t.Fatal(err)
	}

	reading, leave := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer leave()
	transcripts := c.transcribe(reading, t, &clients, []schemas.ConversationID{conv})
	appendEvents(kept, kept+lost)
	for _, tr := range transcripts {
		if err := tr.Until(ctx, func(_ schemas.Cursor, n int) bool { return n == kept+lost }); err != nil {
			t.Fatalf("%s saw %d events before the loss: %v", tr.Way, tr.Count(), err)
		}
	}
	atRest := c.eventsAfter(ctx, t, conv, "-1")
	if len(atRest.Events) != kept+lost {
		t.Fatalf("%d events before the loss, want %d", len(atRest.Events), kept+lost)
	}

	server.kill()
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(store, os.DirFS(image)); err != nil {
		t.Fatal(err)
	}
	c.revive(t, server)
	appendEvents(1000, 1000+later) // other events, until they are more than were lost

	log := c.readLog(ctx, t, []schemas.ConversationID{conv})[conv]
	if len(log) != kept+later {
		t.Fatalf("the log has %d events after the loss, want %d", len(log), kept+later)
	}
	end := log[len(log)-1].at
	for _, tr := range transcripts {
		if err := tr.Until(ctx, func(last schemas.Cursor, _ int) bool { return last == end }); err != nil {
			t.Errorf("%s: %v; the end is %s", tr.Way, err, end)
		}
		if len(tr.Gaps()) == 0 {
			t.Errorf("%s was not told that events are lost; it saw %d events", tr.Way, tr.Count())
		}
	}
	back := c.eventsAfter(ctx, t, conv, atRest.Next)
	if back.Recovered {
		t.Errorf("a cursor of the lost tail is taken for one of the log: recovered, %d events, want a gap", len(back.Events))
	}
	seen := map[string]bool{}
	for _, e := range back.Events {
		seen[e.Event.ID] = true
	}
	for _, e := range log[kept:] {
		if !seen[e.id] {
			t.Errorf("who came back later was never told event %s", e.id)
		}
	}
}

// eventsPage is what a read of a conversation answers.
type eventsPage struct {
	Events []struct {
		Event schemas.Event `json:"event"`
	} `json:"events"`
	Next      string `json:"next"`
	UpToDate  bool   `json:"up_to_date"`
	Recovered bool   `json:"recovered"`
}

// eventsAfter reads one page of a conversation.
func (c *cluster) eventsAfter(ctx context.Context, t *testing.T, conversation, after string) eventsPage {
	t.Helper()
	status, answer, err := c.ask(ctx, http.MethodGet, "/v1/conversations/"+url.PathEscape(conversation)+
		"/events?after="+url.QueryEscape(after), nil)
	var p eventsPage
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &p) != nil {
		t.Fatalf("conversation %s: %d %.300s %v", conversation, status, answer, err)
	}
	return p
}
