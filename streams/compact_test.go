package streams_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
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

func (s *story) finish(call string) {
	s.add(call, schemas.CallFinished, schemas.Result{Call: schemas.CallID(call)})
}

// Whatever was said and wherever a reader begins: it is told each event but pieces whose whole follows,
// and no piece from the middle without a snapshot.
func TestCompactionLeavesOutWhatIsToldWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s story
		over := map[string]bool{}
		calls := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			call := calls.Draw(t, "call")
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case over[call] || what == 0:
				s.add(call, schemas.Message, map[string]string{"text": "hello"})
			case what == 1:
				s.finish(call)
				over[call] = true
			default:
				s.print(call, rapid.SampledFrom([]string{"stdout", "stderr"}).Draw(t, "stream"), rapid.StringN(1, 5, 5).Draw(t, "text"))
			}
		}
		from := rapid.IntRange(0, len(s.events)).Draw(t, "from")
		head := rapid.IntRange(from, len(s.events)).Draw(t, "head") // what comes after it is live
		c := streams.NewCompaction()
		ends := map[string]int{}
		for i, e := range s.events[from:head] {
			c.Ahead(e)
			if e.Type == schemas.CallFinished {
				ends[e.Subject] = from + i
			}
		}
		has := map[string]int64{} // what the reader has of each stream
		for i, e := range s.events[from:] {
			fate := c.Next(e)
			end, ended := ends[e.Subject]
			if e.Type != schemas.CallOutput {
				if fate != streams.Told {
					t.Fatalf("%s is %v; want told", e.Type, fate)
				}
				continue
			}
			if wantOut := ended && from+i < end; (fate == streams.LeftOut) != wantOut {
				t.Fatalf("piece %d is %v; want left out %v", from+i, fate, wantOut)
			}
			d := outputOf(t, e)
			k := e.Subject + "/" + d.Stream
			switch fate {
			case streams.AfterSnapshot:
				for _, stream := range []string{"stdout", "stderr"} {
					has[e.Subject+"/"+stream] = printedBefore(t, s.events[:from+i], e.Subject, stream)
				}
				fallthrough
			case streams.Told:
				if has[k] != d.Offset {
					t.Fatalf("piece %d begins at %d; the reader has %d", from+i, d.Offset, has[k])
				}
				has[k] += int64(d.Bytes)
			case streams.LeftOut:
			}
		}
	})
}

func outputOf(t interface{ Fatal(args ...any) }, e schemas.Event) schemas.OutputData {
	d, err := decodeData[schemas.OutputData](e)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func printedBefore(t interface{ Fatal(args ...any) }, events []schemas.Event, call, stream string) int64 {
	n := int64(0)
	for _, e := range events {
		if e.Type == schemas.CallOutput && e.Subject == call {
			if d := outputOf(t, e); d.Stream == stream {
				n += int64(d.Bytes)
			}
		}
	}
	return n
}

// told is what a compact reader was told, in short.
func told(i streams.Item) string {
	var b strings.Builder
	if i.Skipped > 0 {
		fmt.Fprintf(&b, "+%d ", i.Skipped)
	}
	if i.Gap != nil {
		b.WriteString("gap ")
	}
	if s := i.Snapshot; s != nil {
		fmt.Fprintf(&b, "[%s", s.Call)
		for _, o := range s.Output {
			fmt.Fprintf(&b, " %s@%d+%d=%s", o.Stream, o.Offset, o.Bytes, o.Text)
		}
		b.WriteString("] ")
	}
	switch i.Kind {
	case streams.ItemAttached:
		b.WriteString("attached")
	case streams.ItemLive:
		b.WriteString("live")
	case streams.ItemEvent:
		b.WriteString(i.Entry.Value.Subject + " " + string(i.Entry.Value.Type))
		if d, err := decodeData[schemas.OutputData](i.Entry.Value); err == nil && d.Text != "" {
			b.WriteString(" " + d.Text)
		}
	}
	return b.String()
}

func TestACompactReaderIsToldFinishedThingsWhole(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var s story
		s.add("a", schemas.CallStarted, schemas.StartedData{})
		s.print("a", "stdout", "one ")
		s.add("b", schemas.CallStarted, schemas.StartedData{})
		s.print("b", "stdout", "yes ")
		s.print("b", "stderr", "no ")
		s.print("a", "stdout", "two")
		s.finish("a") // 6
		s.print("b", "stdout", "more ")
		var places []schemas.Cursor
		for _, e := range s.events {
			ok(t, streams.Events.Publish(t.Context(), b, e))
		}
		page := must(streams.Page(t.Context(), b, account, "c_story", schemas.Cursor{}, 0))(t)
		for _, e := range page.Events {
			places = append(places, e.Cursor)
		}
		s.print("b", "stderr", "and no ")
		s.finish("b")
		live := s.events[len(places):]
		for name, c := range map[string]struct {
			after schemas.Cursor
			want  []string
		}{
			"from the beginning": {schemas.Cursor{}, []string{
				"attached", "a call.started", "+1 b call.started", "b call.output yes ", "b call.output no ", "+1 a call.finished",
				"b call.output more ", "live", "b call.output and no ", "b call.finished",
			}},
			"from within both": {places[3], []string{
				"attached", "b call.output no ", "+1 a call.finished", "[b stdout@0+4=yes  stderr@0+3=no ] b call.output more ",
				"live", "b call.output and no ", "b call.finished",
			}},
			"from now": {schemas.Tail, []string{
				"attached", "live", "[b stdout@0+9=yes more  stderr@0+3=no ] b call.output and no ", "b call.finished",
			}},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			var got []string
			for i, err := range streams.Compact(ctx, b, account, "c_story", streams.Follow(ctx, b, account, "c_story", c.after)) {
				ok(t, err)
				got = append(got, told(i))
				if i.Kind == streams.ItemLive {
					break
				}
			}
			cancel()
			n := len(got)
			if c.after.IsTail() { // only what comes later: told below
				n = 2
			}
			if strings.Join(got, "|") != strings.Join(c.want[:n], "|") {
				t.Errorf("%s: told\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want[:n], "\n"))
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []string
		for i, err := range streams.Compact(ctx, b, account, "c_story", streams.Follow(ctx, b, account, "c_story", schemas.Tail)) {
			ok(t, err)
			got = append(got, told(i))
			if i.Kind == streams.ItemLive {
				for _, e := range live {
					ok(t, streams.Events.Publish(ctx, b, e))
				}
			}
			if len(got) == 4 {
				break
			}
		}
		want := "attached|live|[b stdout@0+9=yes more  stderr@0+3=no ] b call.output and no |b call.finished"
		if strings.Join(got, "|") != want {
			t.Errorf("from now: told %s; want %s", strings.Join(got, "|"), want)
		}
	})
}

func TestACompactPageLooksBehindItself(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var s story
		s.print("a", "stdout", "one ")
		s.print("b", "stdout", "yes ")
		s.print("a", "stdout", "two ")
		s.print("b", "stdout", "no ")
		s.finish("a")
		for _, e := range s.events {
			ok(t, streams.Events.Publish(t.Context(), b, e))
		}
		var got []string
		after := schemas.Cursor{}
		for {
			page := must(streams.Page(t.Context(), b, account, "c_story", after, 2))(t)
			after = page.Next
			items := must(streams.CompactPage(t.Context(), b, account, "c_story", page))(t)
			for _, i := range items {
				got = append(got, told(i))
			}
			got = append(got, "--")
			if page.UpToDate {
				break
			}
		}
		want := "+1 b call.output yes |--|+1 [b stdout@0+4=yes ] b call.output no |--|a call.finished|--"
		if strings.Join(got, "|") != want {
			t.Errorf("told %s; want %s", strings.Join(got, "|"), want)
		}
	})
}

func TestASnapshotIsTheEndOfWhatIsLong(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		var s story
		const piece = 40_000
		for n := range 6 {
			s.print("a", "stdout", strings.Repeat(fmt.Sprint(n), piece))
		}
		for _, e := range s.events {
			ok(t, streams.Events.Publish(t.Context(), b, e))
		}
		page := must(streams.Page(t.Context(), b, account, "c_story", schemas.Cursor{}, 5))(t)
		page = must(streams.Page(t.Context(), b, account, "c_story", page.Next, 5))(t)
		items := must(streams.CompactPage(t.Context(), b, account, "c_story", page))(t)
		if len(items) != 1 || items[0].Snapshot == nil || len(items[0].Snapshot.Output) != 1 {
			t.Fatalf("told %+v; want one piece with a snapshot", items)
		}
		o := items[0].Snapshot.Output[0]
		if o.Offset != 2*piece || o.Bytes != 3*piece || o.Text != strings.Repeat("2", piece)+strings.Repeat("3", piece)+strings.Repeat("4", piece) {
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
			ok(t, streams.Events.Publish(t.Context(), b, e))
		}
		page := must(streams.Page(t.Context(), b, account, "c_story", schemas.Cursor{}, 0))(t)
		var places []streams.PlacedPiece
		for i := range page.Events {
			e := page.Events[(i*17)%len(page.Events)] // in no order
			p, isPiece := streams.PieceOf(e.Value)
			if !isPiece {
				t.Fatalf("%+v is no piece", e.Value)
			}
			places = append(places, streams.PlacedPiece{Piece: p, Seq: e.Cursor.Seq})
		}
		made := must(streams.Snapshots(t.Context(), b, account, "c_story", places))(t)
		for i, p := range places {
			has := map[string]string{}
			for _, o := range made[i].Output {
				has[o.Stream] = o.Text
			}
			for _, stream := range []string{"stdout", "stderr"} {
				want := ""
				for _, e := range page.Events {
					if d := outputOf(t, e.Value); e.Cursor.Seq < p.Seq && d.Call == p.Call && d.Stream == stream {
						want += d.Text
					}
				}
				if made[i].Call != p.Call || has[stream] != want {
					t.Errorf("before %d of %s: %s %q; want %q", p.Seq, p.Call, stream, has[stream], want)
				}
			}
		}
	})
}
