package streams_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/outputs"
)

// story writes the events of calls on one conversation, as workers do.
type story struct {
	events []schemas.Event
	offset map[string]int
}

func (s *story) add(call string, typ schemas.EventType, data any) {
	c := callOf(call)
	c.Conversation = "c_story"
	s.events = append(s.events, schemas.NewEvent(c, typ, fmt.Sprint("e", len(s.events)), time.Now(), data))
}

func (s *story) print(call, stream, text string) {
	if s.offset == nil {
		s.offset = map[string]int{}
	}
	k := call + "/" + stream
	s.add(call, schemas.CallOutput, schemas.OutputData{
		Call: schemas.CallID(call), Stream: stream, Offset: int64(s.offset[k]), Text: text, Bytes: len(text), Attempt: 1,
	})
	s.offset[k] += len(text)
}

func outputOf(t interface{ Fatal(args ...any) }, e schemas.Event) schemas.OutputData {
	d, err := decodeData[schemas.OutputData](e)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestASnapshotIsTheEndOfWhatIsLong(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var s story
		const piece = 40_000
		for n := range 6 {
			s.print("a", "stdout", strings.Repeat(fmt.Sprint(n), piece))
		}
		for _, e := range s.events {
			testwait.OK(t, streams.Events.Publish(t.Context(), b, e))
		}
		page := testwait.Must(streams.Page(t.Context(), b, account, "c_story", schemas.Cursor{}, 0))(t)
		last := page.Events[len(page.Events)-1]
		p, _ := outputs.PieceOf(last.Value)
		made := testwait.Must(b.States().Snapshots(t.Context(), account, "c_story", []outputs.PlacedPiece{{Piece: p, Seq: last.Cursor.Seq}}))(t)
		if len(made) != 1 || len(made[0].Output) != 1 {
			t.Fatalf("made %+v; want one snapshot of one stream", made)
		}
		o := made[0].Output[0]
		if o.Offset != 2*piece || o.Bytes != 3*piece ||
			o.Text != strings.Repeat("2", piece)+strings.Repeat("3", piece)+strings.Repeat("4", piece) {
			t.Errorf("the snapshot has %d bytes from %d; want the last %d", o.Bytes, o.Offset, 3*piece)
		}
	})
}

func decodeData[T any](e schemas.Event) (v T, err error) {
	err = json.Unmarshal(e.Data, &v)
	return v, err
}

func TestSnapshotsOfManyPlacesAreThoseOfEach(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var s story
		for n := range 40 {
			call := []string{"a", "b", "c"}[n%3]
			s.print(call, []string{"stdout", "stderr"}[n/3%2], fmt.Sprint(n, " "))
		}
		for _, e := range s.events {
			testwait.OK(t, streams.Events.Publish(t.Context(), b, e))
		}
		page := testwait.Must(streams.Page(t.Context(), b, account, "c_story", schemas.Cursor{}, 0))(t)
		var places []outputs.PlacedPiece
		for i := range page.Events {
			e := page.Events[(i*17)%len(page.Events)] // in no order
			p, isPiece := outputs.PieceOf(e.Value)
			if !isPiece {
				t.Fatalf("%+v is no piece", e.Value)
			}
			places = append(places, outputs.PlacedPiece{Piece: p, Seq: e.Cursor.Seq})
		}
		made := testwait.Must(b.States().Snapshots(t.Context(), account, "c_story", places))(t)
		for i, p := range places {
			has := map[string]string{}
			for _, o := range made[i].Output {
				has[o.Stream] = o.Text
			}
			for _, stream := range []string{"stdout", "stderr"} {
				var want strings.Builder
				for _, e := range page.Events {
					if d := outputOf(t, e.Value); e.Cursor.Seq < p.Seq && d.Call == p.Call && d.Stream == stream {
						want.WriteString(d.Text)
					}
				}
				if made[i].Call != p.Call || has[stream] != want.String() {
					t.Errorf("before %d of %s: %s %q; want %q", p.Seq, p.Call, stream, has[stream], want.String())
				}
			}
		}
	})
}
