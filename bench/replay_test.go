package bench

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// serverFrame is a frame as the gateway sends it.
func serverFrame(text string) []byte {
	const short, two = 125, 126
	if len(text) <= short {
		return append([]byte{opText, byte(len(text))}, text...)
	}
	return append([]byte{opText, two, byte(len(text) >> 8), byte(len(text))}, text...)
}

// eventFrame returns the frame of an event as the gateway sends it. seq is the sequence of the event and prev that of the one before it, 0
// for the first.
func eventFrame(seq, prev int, data string) []byte {
	before := startCursor
	if prev > 0 {
		before = schemas.Cursor{Epoch: "e", Seq: uint64(prev)}.String()
	}
	return serverFrame(fmt.Sprintf(`{"op":"ev","conv":"c","cur":"%s","prev":"%s","replay":true,"data":{"data":%s}}`,
		schemas.Cursor{Epoch: "e", Seq: uint64(seq)}, before, data))
}

// TestFollowerSeesWhatIsWrong: the client of the benchmark counts as faults the events that are lost, repeated or out of order, and gaps.
func TestFollowerSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	live := serverFrame(opLive + `}`)
	for name, tc := range map[string]struct {
		frames         [][]byte
		events, faults int
	}{
		"all of them":  {[][]byte{eventFrame(3, 0, `{}`), eventFrame(7, 3, `{}`), eventFrame(8, 7, `{}`), live}, 3, 0},
		"one lost":     {[][]byte{eventFrame(3, 0, `{}`), eventFrame(8, 7, `{}`), live}, 2, 1},
		"the first":    {[][]byte{eventFrame(7, 3, `{}`), eventFrame(8, 7, `{}`), live}, 2, 1},
		"one twice":    {[][]byte{eventFrame(3, 0, `{}`), eventFrame(7, 3, `{}`), eventFrame(7, 3, `{}`), live}, 3, 1},
		"out of order": {[][]byte{eventFrame(7, 3, `{}`), eventFrame(3, 0, `{}`), live}, 2, 2},
		"a gap":        {[][]byte{serverFrame(opGap + `}`), eventFrame(3, 0, `{}`), live}, 1, 1},
		"large":        {[][]byte{eventFrame(3, 0, `"`+strings.Repeat("x", 3000)+`"`), eventFrame(4, 3, `{}`), live}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := net.Pipe()
			defer here.Close()
			f := &follower{conn: here, room: make([]byte, smallRoom)}
			go func() {
				_ = f.attach("c", []byte(startCursor)) // shows below
			}()
			if _, err := there.Read(make([]byte, smallRoom)); err != nil {
				t.Fatal(err)
			}
			go func() {
				defer there.Close()
				for part := range bytesOf(bytes.Join(tc.frames, nil)) {
					if _, err := there.Write(part); err != nil {
						return
					}
				}
			}()
			if err := f.until(opLive); err != nil {
				t.Fatal(err)
			}
			if !f.live || f.events != tc.events || f.faults != tc.faults {
				t.Errorf("%d events, %d faults; want %d, %d", f.events, f.faults, tc.events, tc.faults)
			}
		})
	}
}

// bytesOf yields b in pieces of 97 bytes, which end anywhere in a frame.
func bytesOf(b []byte) func(yield func([]byte) bool) {
	const piece = 97
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(piece, len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

func TestStamps(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 123_456_789)
	if got, ok := stampOf(eventFrame(3, 0, string(stamped(now))), inFrame); !ok || !got.Equal(now) {
		t.Errorf("%v, %v; want %v", got, ok, now)
	}
	for _, frame := range []string{"", "}}", strings.Repeat("x", 300)} {
		if got, ok := stampOf([]byte(frame), inFrame); ok {
			t.Errorf("%.10q has the stamp %v", frame, got)
		}
	}
}

func TestCrowdAboveTheLimitOfFiles(t *testing.T) {
	t.Parallel()
	const nobodyHas = 1 << 40
	if _, err := ReplayIdle(t.Context(), Crowd{Clients: nobodyHas}); schemas.CodeOf(err) != schemas.Invalid {
		t.Errorf("got %v, want invalid", err)
	}
}

func FuzzSplitFrame(f *testing.F) {
	f.Add(eventFrame(3, 0, `{}`))
	f.Add([]byte{opText, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, body, size := splitFrame(b)
		if size > len(b) || len(body) > size {
			t.Fatalf("%d of %d bytes, %d of them the body", size, len(b), len(body))
		}
		if size > 0 {
			if _, _, short := splitFrame(b[:size-1]); short != 0 {
				t.Fatalf("less than a frame is one of %d bytes", short)
			}
		}
	})
}
