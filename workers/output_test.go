package workers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// recorder is a log that takes everything, or fails from a piece on.
type recorder struct {
	mu     sync.Mutex
	pieces []schemas.OutputData
	fail   int // the number of the piece whose arrival fails, from 1; 0: none
}

var errLog = errors.New("the log is away")

func (r *recorder) live() *outputStreamer {
	return &outputStreamer{call: "call_1", attempt: 1, publish: func(d schemas.OutputData) (func(context.Context) error, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pieces = append(r.pieces, d)
		n := len(r.pieces)
		return func(context.Context) error {
			if n == r.fail {
				return errLog
			}
			return nil
		}, nil
	}}
}

func (r *recorder) sent() []schemas.OutputData {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pieces)
}

func (r *recorder) text(stream string) string {
	var b strings.Builder
	for _, p := range r.sent() {
		if p.Stream == stream {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

//guarantee:a-conversation-has-no-holes
func TestLiveOutputIsWholeAndInOrder(t *testing.T) {
	t.Parallel()
	proptest.Check(t, func(t *rapid.T) {
		chunks := rapid.SliceOfN(rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 100),
			rapid.Map(rapid.StringN(0, 200, -1), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.IntRange(1, 40_000), func(n int) []byte { return []byte(strings.Repeat("é", n)) }),
		), 0, 12).Draw(t, "chunks")
		var r recorder
		l := r.live()
		var want [2]strings.Builder
		for _, c := range chunks {
			cut := rapid.IntRange(0, len(c)).Draw(t, "cut") // also in the middle of a character
			i := rapid.IntRange(0, 1).Draw(t, "stream")
			want[i].Write(c)
			for _, part := range [][]byte{c[:cut], c[cut:]} {
				l.write(providers.Chunk{Stderr: i == 1, Data: part})
			}
		}
		if err := l.end(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			name := streamName(i)
			if got, want := squeeze(r.text(name)), squeeze(strings.ToValidUTF8(want[i].String(), "\uFFFD")); got != want {
				t.Fatalf("%s is %.80q…, want %.80q…", name, got, want)
			}
			var next int64
			for _, p := range r.sent() {
				if p.Stream != name {
					continue
				}
				if p.Offset != next {
					t.Fatalf("%s: a piece at %d, want %d", name, p.Offset, next)
				}
				if !utf8.ValidString(p.Text) || p.Bytes > schemas.MaxChunk {
					t.Fatalf("%s: a piece of %d bytes, valid: %v", name, p.Bytes, utf8.ValidString(p.Text))
				}
				next += int64(p.Bytes)
			}
		}
	})
}

// squeeze makes runs of the replacement character one: where a run of bytes is cut decides how many
// there are.
func squeeze(s string) string {
	for strings.Contains(s, "\uFFFD\uFFFD") {
		s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
	}
	return s
}

func TestLiveOutputIsCapped(t *testing.T) {
	t.Parallel()
	var r recorder
	l := r.live()
	chunk := []byte(strings.Repeat("x", schemas.MaxChunk))
	for range 100 {
		l.write(providers.Chunk{Data: chunk})
	}
	l.write(providers.Chunk{Stderr: true, Data: []byte("too late")})
	if err := l.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(r.text("stdout")); n != liveCap {
		t.Errorf("%d bytes were sent live, want %d", n, liveCap)
	}
	last := r.sent()[len(r.sent())-1]
	if !last.Capped || last.Text != "" || last.Offset != liveCap || r.text("stderr") != "" {
		t.Errorf("the last piece is %+v, want an empty capped one at %d and nothing after it", last, liveCap)
	}
	for _, p := range r.sent()[:len(r.sent())-1] {
		if p.Capped {
			t.Errorf("a capped piece before the last: %+v", p)
		}
	}
}

func TestLiveOutputStopsWithTheLog(t *testing.T) {
	t.Parallel()
	r := recorder{fail: 1}
	l := r.live()
	chunk := []byte(strings.Repeat("x", livePiece))
	for range 60 { // below the cap
		l.write(providers.Chunk{Data: chunk})
	}
	if err := l.end(t.Context()); !errors.Is(err, errLog) {
		t.Fatalf("end: %v, want the log's error", err)
	}
	if n := len(r.sent()); n > liveWindow+1 {
		t.Errorf("%d pieces were sent, want none after the window of %d", n, liveWindow)
	}
}

func TestLiveOutputIsCollectedForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := r.live()
		for range 10 {
			l.write(providers.Chunk{Data: []byte("x")})
			time.Sleep(liveDelay / 20)
		}
		if len(r.sent()) != 0 {
			t.Fatalf("%d pieces after half the delay, want none yet", len(r.sent()))
		}
		time.Sleep(liveDelay)
		synctest.Wait()
		if got := r.sent(); len(got) != 1 || got[0].Text != "xxxxxxxxxx" {
			t.Fatalf("pieces: %+v, want all ten in one", got)
		}
		l.write(providers.Chunk{Data: []byte("caf\xc3")})
		time.Sleep(2 * liveDelay)
		synctest.Wait()
		if got := r.text("stdout"); got != "xxxxxxxxxxcaf" {
			t.Fatalf("sent %q: half a character must wait for its other half", got)
		}
		l.write(providers.Chunk{Data: []byte("\xa9")})
		if err := l.end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.text("stdout"); got != "xxxxxxxxxxcafé" {
			t.Fatalf("sent %q", got)
		}
	})
}

func TestASlowPrinterLeavesFewEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := r.live()
		for start := time.Now(); time.Since(start) < schemas.MaxTimeout; time.Sleep(10 * time.Millisecond) {
			l.write(providers.Chunk{Data: []byte("tick\n")})
		}
		if err := l.end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(r.sent()); n > 3000 {
			t.Errorf("%d events in ten minutes, want at most 3000", n)
		}
	})
}
