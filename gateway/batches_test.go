package gateway_test

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/live"
)

// packed is a WebSocket of the library's own client, which offers compression and counts what it reads.
func (e *edge) packed(offer bool) (*socket, *atomic.Int64, string) {
	e.t.Helper()
	var read atomic.Int64
	d := websocket.Dialer{EnableCompression: offer, NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return countedConn{c, &read}, err
	}}
	c, resp, err := d.DialContext(e.t.Context(), "ws"+strings.TrimPrefix(e.url, "http")+"/v1/ws",
		http.Header{"Authorization": {"Bearer " + aliceKey}})
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	return &socket{e.t, c}, &read, resp.Header.Get("Sec-Websocket-Extensions")
}

type countedConn struct {
	net.Conn

	read *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// TestReplayIsSentInBatchesOnRequest: with compression or without, the frames in them are those of everybody else, and
// what is live comes alone.
//
//guarantee:a-conversation-has-no-holes
func TestReplayIsSentInBatchesOnRequest(t *testing.T) {
	t.Parallel()
	const events, large = 300, 100 // the number of one that is too large for a batch
	text := func(n int) string {
		if n == large {
			return strings.Repeat("a large one ", 20_000)
		}
		return strings.Repeat("x", n)
	}
	for name, tc := range map[string]struct {
		allowed, offered, batch bool
	}{
		"compressed batches":           {true, true, true},
		"batches":                      {false, false, true},
		"batches, nothing offered":     {true, false, true},
		"batches, nothing allowed":     {false, true, true},
		"compressed, no batches":       {true, true, false},
		"neither, as everybody has it": {false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, func(o *gateway.Options) { o.ReplayCompression = tc.allowed })
			for n := range events {
				e.note("c_1", n, text(n))
			}
			s, read, agreed := e.packed(tc.offered)
			if (agreed != "") != (tc.allowed && tc.offered) {
				t.Errorf("agreed on %q", agreed)
			}
			s.write(fmt.Sprintf(`{"op":"attach","id":1,"conv":"c_1","batch":%t}`, tc.batch))
			prev, got, messages, size := "-1", 0, 0, 0
			take := func(f frame) {
				if f.Op != "ev" || f.Conv != "c_1" || f.Prev != prev || f.Data.ID != fmt.Sprintf("c_1.%d", got) || got < events != f.Replay {
					t.Fatalf("event %d after %s: %+v", got, prev, f)
				}
				prev = f.Cur
				got++
			}
			for live := false; !live; {
				_, b, err := s.c.ReadMessage()
				if err != nil {
					t.Fatal(err)
				}
				size += len(b)
				var f struct {
					frame

					Frames []frame `json:"frames"`
				}
				if err := json.Unmarshal(b, &f); err != nil {
					t.Fatalf("%v: %.200s", err, b)
				}
				switch f.Op {
				case "attached":
				case "live":
					live = true
				case "batch":
					if !tc.batch || f.Conv != "c_1" || len(f.Frames) < 2 || len(b) > 64<<10 {
						t.Errorf("a batch of %d events of %s, %d bytes, asked for: %v", len(f.Frames), f.Conv, len(b), tc.batch)
					}
					messages++
					for _, f := range f.Frames {
						take(f)
					}
				default:
					messages++
					take(f.frame)
				}
			}
			if got != events || tc.batch != (messages < events/2) {
				t.Errorf("%d events in %d messages", got, messages)
			}
			most := 2 * size // as it is, with what stands around it
			switch {
			case agreed != "" && tc.batch:
				most = size / 5
			case agreed != "": // the large one
				most = size * 2 / 3
			}
			if wire := int(read.Load()); wire > most || agreed == "" && wire < size {
				t.Errorf("%d bytes came for %d, want at most %d", wire, size, most)
			}
			e.note("c_1", events, text(events))
			take(s.next())
		})
	}
}

// TestSnapshotsStandBetweenBatches: a compact reader may ask for batches too.
func TestSnapshotsStandBetweenBatches(t *testing.T) {
	t.Parallel()
	e := open(t, func(o *gateway.Options) { o.ReplayCompression = true })
	const pieces = 40
	cut := ""
	for n := range pieces {
		e.note("c_1", n, strings.Repeat("y", 200))
		if n == pieces/2 {
			all := e.socket()
			all.write(`{"op":"attach","conv":"c_1"}`)
			cut = all.until("live")[n+1].Cur
		}
	}
	s, _, _ := e.packed(true)
	s.write(`{"op":"attach","conv":"c_1","compact":true,"batch":true,"after":"` + cut + `"}`)
	const after = pieces - pieces/2 - 1
	var ops []string
	for events, live := 0, false; events < after || !live; {
		var f struct {
			frame

			Frames []frame
		}
		if err := s.c.ReadJSON(&f); err != nil {
			t.Fatal(err)
		}
		frames := []frame{f.frame}
		if f.Op == "batch" {
			frames = f.Frames
		}
		for _, one := range frames {
			switch one.Op {
			case "ev":
				events++
			case "live": // the last events may come live: another reader is there already
				live = true
				continue
			}
			ops = append(ops, one.Op)
		}
	}
	want := "attached|snapshot" + strings.Repeat("|ev", after)
	if got := strings.Join(ops, "|"); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

// TestClientsMayCompressWhatTheySend, as browsers do once it is agreed.
func TestClientsMayCompressWhatTheySend(t *testing.T) {
	t.Parallel()
	e := open(t, func(o *gateway.Options) { o.ReplayCompression = true })
	s, _, _ := e.packed(true)
	s.write(`{"op":"ping","id":1}`) // the library compresses it
	if f := s.next(); f.Op != "pong" || *f.ID != 1 {
		t.Errorf("%+v", f)
	}
	s.c.EnableWriteCompression(false) // and it need not
	s.write(`{"op":"ping","id":2}`)
	if f := s.next(); f.Op != "pong" || *f.ID != 2 {
		t.Errorf("%+v", f)
	}
	packed := pack(t, `{"op":"ping","id":3}`)
	s.raw(0x40|websocket.TextMessage, packed[:5])
	s.raw(0x80|websocket.PingMessage, nil) // between the frames of a message
	s.raw(0x00, packed[5:9])
	s.raw(0x80, packed[9:])
	if f := s.next(); f.Op != "pong" || *f.ID != 3 {
		t.Errorf("in frames: %+v", f)
	}
}

//guarantee:bad-input-is-answered-not-guessed
func TestBombsAndWrongCompressionEndTheSocket(t *testing.T) {
	t.Parallel()
	bomb := pack(t, `{"op":"ping","x":"`+strings.Repeat("0", 16<<20)+`"}`)
	if len(bomb) > live.MaxFrame {
		t.Fatalf("%d bytes: it would be too large anyway", len(bomb))
	}
	const first = 0xc0 | websocket.TextMessage
	ping := pack(t, `{"op":"ping"}`)
	for name, tc := range map[string]struct {
		agreed bool
		first  byte
		body   []byte
	}{
		"a bomb":                        {true, first, bomb},
		"no deflate":                    {true, first, []byte("\xff\xff")},
		"compressed, which is not JSON": {true, first, pack(t, "hello")},
		"compressed without agreement":  {false, first, ping},
		"a compressed ping":             {true, 0xc0 | websocket.PingMessage, ping},
		"another bit":                   {true, 0x20 | first, ping},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t, func(o *gateway.Options) { o.ReplayCompression = tc.agreed })
			s, _, _ := e.packed(true)
			s.raw(tc.first, tc.body)
			if code, _ := s.closedWith(); code != int(live.CloseProtocol) {
				t.Errorf("closed with %d", code)
			}
		})
	}
}

// raw writes a frame past the library, masked with zeros.
func (s *socket) raw(first byte, body []byte) {
	s.t.Helper()
	b := []byte{first, 0x80 | byte(len(body))}
	if len(body) > 125 {
		b = []byte{first, 0x80 | 127, 0, 0, 0, 0, byte(len(body) >> 24), byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}
	}
	if _, err := s.c.NetConn().Write(append(append(b, 0, 0, 0, 0), body...)); err != nil {
		s.t.Fatal(err)
	}
}

// pack compresses a message as a client does.
func pack(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(text)) // into memory
	_ = w.Flush()                // as above
	return bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff"))
}
