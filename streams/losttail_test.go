package streams_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
)

// The log comes back without its newest messages, as after a power cut, and grows again. A reader that has seen the lost messages gets an
// error, although other events have their sequences now.
//
//guarantee:a-conversation-has-no-holes
func TestACursorOfALostEndIsRecognised(t *testing.T) {
	dir := t.TempDir()
	data, image := filepath.Join(dir, "data"), filepath.Join(dir, "image")
	c := callOf("a")
	var cursors []schemas.Cursor
	// add publishes to a server on the data folder, which ends in order after it.
	add := func(name string, n int, then func(*streams.Bus)) {
		t.Helper()
		s := testwait.Must(streams.StartServer(t.Context(), embedded.Options{DataDir: data, Port: -1, Name: "lost"}, fair.Shares{}))(t)
		defer s.Shutdown()
		b := testwait.Must(streams.Open(t.Context(), streams.Options{Server: s}))(t)
		for i := range n {
			e := eventOf(c, fmt.Sprint(name, i), schemas.CallOutput, schemas.OutputData{Text: "x"})
			stored := testwait.Must(streams.Events.Store(t.Context(), b, e))(t)
			if name == "lost" || name == "kept" {
				cursors = append(cursors, stored.Cursor)
			}
		}
		if then != nil {
			then(b)
		}
		testwait.OK(t, b.Close(t.Context()))
	}
	add("kept", 10, nil)
	testwait.OK(t, os.CopyFS(image, os.DirFS(data)))
	add("lost", 5, nil)
	testwait.OK(t, os.RemoveAll(data))
	testwait.OK(t, os.CopyFS(data, os.DirFS(image)))
	add("new", 8, func(b *streams.Bus) {
		for i, after := range cursors {
			text := after.String()
			after := testwait.Must(schemas.ParseCursor(text))(t)
			page := testwait.Must(streams.Page(t.Context(), b, account, c.Conversation, after, 0))(t)
			place := testwait.Must(streams.Locate(t.Context(), b, account, c.Conversation, after))(t)
			if kept := i < 10; page.Recovered != kept || (place.Gap == nil) != kept || kept && len(page.Events) != 17-i ||
				!kept && len(page.Events) != 18 {
				t.Errorf("after event %d (%s): recovered %v, %d events, gap %v", i, text, page.Recovered, len(page.Events), place.Gap)
			}
			old := after.Place() // as an older version gave it out: it is believed
			if page := testwait.Must(streams.Page(t.Context(), b, account, c.Conversation, old, 0))(t); !page.Recovered || len(page.Events) != 17-i {
				t.Errorf("after %s: recovered %v, %d events", old, page.Recovered, len(page.Events))
			}
		}
	})
}
