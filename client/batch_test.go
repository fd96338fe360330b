package client_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/schemas"
)

// TestSocketTakesBatches: compressed ones, with a repeat and a hole in them, and none that is a bomb.
//
//guarantee:a-conversation-has-no-holes
func TestSocketTakesBatches(t *testing.T) {
	t.Parallel()
	batch := func(frames ...string) string {
		return `{"op":"batch","conv":"c","frames":[` + strings.Join(frames, ",") + `]}`
	}
	connections := make(chan int, 2)
	connections <- 1
	connections <- 2
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{EnableCompression: true}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		p := &peer{t, conn}
		attach := func(after string) {
			o := p.hear("attach")
			if o.After != after || !o.Batch {
				t.Errorf("attached with %+v, want batches after %s", o, after)
			}
			p.say(fmt.Sprintf(`{"op":"attached","id":%d,"conv":"c","head":%q,"recovered":true}`, o.ID, cur(9)))
		}
		switch <-connections {
		case 1:
			attach("-1")
			p.say(batch(ev(1, 0), ev(2, 1), ev(2, 1), ev(4, 3), ev(5, 4)))
			p.hear("detach") // the hole is asked for, and what follows it in the batch is of an earlier attach
			attach(cur(2))
			p.say(batch(ev(3, 2), ev(4, 3)))
			bomb := `{"op":"pad","conv":"` + strings.Repeat("0", 8<<20) + `"}` // a few kilobytes on the way
			_ = conn.WriteMessage(websocket.TextMessage, []byte(bomb))         // the client may go before it is whole
			_, _, _ = conn.ReadMessage()                                       // until it has gone
		default:
			attach(cur(4))
			p.say(batch(ev(5, 4), ev(6, 5)))
			_, _, _ = conn.ReadMessage() // as above
		}
	})
	c.Pause = time.Millisecond
	s := c.Socket()
	s.Batch = true
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var got []string
	for it, err := range s.Follow(ctx, "c", schemas.Cursor{}) {
		if err != nil || it.Gap != nil {
			t.Fatalf("after %v: %v, gap %s", got, err, it.Gap)
		}
		if got = append(got, it.Event.ID); len(got) == 6 {
			break
		}
	}
	if want := []string{"1", "2", "3", "4", "5", "6"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
