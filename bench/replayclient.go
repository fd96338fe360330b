package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// follower is a client of one WebSocket that costs little, so that a measurement is of the gateway: it
// decodes nothing. It knows how a frame begins, compares the bytes of the cursors, and so sees each
// event that is lost, doubled or in another order: every frame names the one before it. It belongs to
// one goroutine.
type follower struct {
	conn net.Conn
	conv string
	buf  []byte // what was read and is not taken yet
	room []byte // the whole of it

	lead   []byte // what a frame with an event begins with, up to its cursor
	last   []byte // cursor of the last event; the beginning's at first
	events int
	faults int  // events that do not follow the one before, and gaps
	live   bool // the replay has ended
	read   int  // bytes, from the socket

	batch    bool      // it asks for replays in batches
	inflate  io.Reader // of compressed messages; nil: there are none
	unpacked bytes.Buffer

	each func(frame []byte) // of each event; may be nil. The frame must not be kept
}

// errBusy is the gateway's refusal that passes.
var errBusy = errors.New("the gateway asks to come back")

const (
	followWithin  = 2 * time.Minute // of anything that a follower waits for
	startCursor   = "-1"
	presentCursor = "now"
	maskBit       = 0x80
	opText        = 0x81
	opPing        = 0x89
	opPong        = 0x8a
	opClose       = 0x88
)

// dialFollower opens a socket. Room is how many bytes it reads at a time; an event must fit.
func dialFollower(ctx context.Context, address, key string, room int) (*follower, error) {
	return dialOffering(ctx, address, key, room, "")
}

// dialOffering opens a socket with another header.
func dialOffering(ctx context.Context, address, key string, room int, header string) (*follower, error) {
	for {
		f, err := tryFollower(ctx, address, key, room, header)
		if !errors.Is(err, errBusy) {
			return f, err
		}
		const pause = 20 * time.Millisecond
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("open a socket: %w", ctx.Err())
		}
	}
}

func tryFollower(ctx context.Context, address, key string, room int, header string) (_ *follower, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	f := &follower{conn: conn, room: make([]byte, room), last: []byte(startCursor)}
	_ = conn.SetDeadline(time.Now().Add(followWithin)) // shows below
	if _, err := fmt.Fprintf(conn, "GET /v1/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%sAuthorization: Bearer %s\r\n\r\n",
		address, header, key); err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	for {
		if end := bytes.Index(f.buf, []byte("\r\n\r\n")); end >= 0 {
			switch status, _, _ := bytes.Cut(f.buf, []byte("\r\n")); {
			case bytes.HasPrefix(status, []byte("HTTP/1.1 101")):
				f.buf = f.buf[end+4:]
				return f, nil
			case bytes.HasPrefix(status, []byte("HTTP/1.1 503")):
				return nil, errBusy
			default:
				return nil, fmt.Errorf("open a socket: %s", f.buf)
			}
		}
		if err := f.fill(); err != nil {
			return nil, fmt.Errorf("open a socket: %w", err)
		}
	}
}

// fill reads more behind what was not taken yet.
func (f *follower) fill() error {
	if len(f.buf) == len(f.room) {
		return io.ErrShortBuffer
	}
	n := copy(f.room, f.buf)
	got, err := f.conn.Read(f.room[n:])
	f.buf = f.room[:n+got]
	f.read += got
	if got > 0 {
		return nil
	}
	return err
}

// attach begins to follow a conversation after a cursor.
func (f *follower) attach(conv string, after []byte) error {
	f.conv, f.live, f.events = conv, false, 0
	f.last = append(f.last[:0], after...)
	f.lead = append(f.lead[:0], `{"op":"ev","conv":"`+conv+`","cur":"`...)
	more := ""
	if f.batch {
		more = `,"batch":true`
	}
	return f.send(`{"op":"attach","id":1,"conv":"` + conv + `","after":"` + string(after) + `"` + more + `}`)
}

func (f *follower) detach() error { return f.send(`{"op":"detach","conv":"` + f.conv + `"}`) }

func (f *follower) send(text string) error {
	_ = f.conn.SetWriteDeadline(time.Now().Add(followWithin)) // shows at the write
	if _, err := f.conn.Write(clientFrame(opText, text)); err != nil {
		return fmt.Errorf("write to the socket: %w", err)
	}
	return nil
}

// clientFrame is a frame from a client, masked with zeros.
func clientFrame(first byte, text string) []byte {
	const short, two = 125, 126
	b := []byte{first}
	if len(text) <= short {
		b = append(b, maskBit|byte(len(text)))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, maskBit|two), uint16(len(text)))
	}
	return append(append(b, 0, 0, 0, 0), text...)
}

// until takes frames until one begins so. It returns an error if the socket ends or reports one.
func (f *follower) until(begins string) error {
	for {
		frame, err := f.next()
		if err != nil {
			return fmt.Errorf("wait for %s: %w", begins, err)
		}
		if bytes.HasPrefix(frame, []byte(begins)) {
			return nil
		}
	}
}

// What frames begin with.
const (
	opLive     = `{"op":"live"`
	opGap      = `{"op":"gap"`
	opError    = `{"op":"error"`
	opDetached = `{"op":"detached"`
)

// next takes one message; what it returns is good until the next call.
func (f *follower) next() ([]byte, error) {
	for {
		first, body, size := splitFrame(f.buf)
		if size == 0 {
			if err := f.fill(); err != nil {
				return nil, fmt.Errorf("read from the socket: %w", err)
			}
			continue
		}
		f.buf = f.buf[size:]
		switch first {
		case opPing:
			if _, err := f.conn.Write(clientFrame(opPong, "")); err != nil {
				return nil, fmt.Errorf("write to the socket: %w", err)
			}
		case opClose:
			return nil, fmt.Errorf("the gateway closed the socket: %q: %w", body, io.EOF)
		case opDeflated:
			text, err := f.unpack(body)
			if err != nil {
				return nil, err
			}
			return text, f.take(text)
		default:
			return body, f.take(body)
		}
	}
}

// splitFrame takes the first frame of a server off what was read; size 0: it is not all there.
func splitFrame(b []byte) (first byte, body []byte, size int) {
	const head, two, eight = 2, 126, 127
	if len(b) < head {
		return 0, nil, 0
	}
	n, start := uint64(b[1]), head
	switch n {
	case two:
		if start += 2; len(b) < start {
			return 0, nil, 0
		}
		n = uint64(binary.BigEndian.Uint16(b[head:]))
	case eight:
		if start += 8; len(b) < start {
			return 0, nil, 0
		}
		n = binary.BigEndian.Uint64(b[head:])
	}
	if n > uint64(len(b)-start) {
		return 0, nil, 0
	}
	end := start + int(n)
	return b[0], b[start:end], end
}

// take looks at a message.
func (f *follower) take(frame []byte) error {
	if bytes.HasPrefix(frame, f.lead) {
		f.follow(frame)
		return nil
	}
	switch {
	case bytes.HasPrefix(frame, []byte(opBatch)):
		f.followBatch(frame)
	case bytes.HasPrefix(frame, []byte(opLive)):
		f.live = true
	case bytes.HasPrefix(frame, []byte(opGap)):
		f.faults++
	case bytes.HasPrefix(frame, []byte(opError)):
		return fmt.Errorf("the gateway says %s", frame)
	}
	return nil
}

// follow takes an event.
func (f *follower) follow(frame []byte) {
	cur, rest, _ := bytes.Cut(frame[len(f.lead):], []byte(`"`))
	prev, ok := bytes.CutPrefix(rest, []byte(`,"prev":"`))
	switch {
	case string(f.last) == presentCursor: // what was before is not asked for
	case !ok || len(prev) <= len(f.last) || !bytes.HasPrefix(prev, f.last) || prev[len(f.last)] != '"':
		f.faults++
	}
	f.last = append(f.last[:0], cur...)
	f.events++
	if f.each != nil {
		f.each(frame)
	}
}

// cut ends the socket as a lost network does, and leaves the kernel nothing to remember.
func (f *follower) cut() {
	if tcp, ok := f.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // at worst the kernel remembers it for a minute
	}
	_ = f.conn.Close()
}

// stamped is the data of an event of about 300 bytes, with the time at a known place before its end.
func stamped(now time.Time) []byte {
	return append(strconv.AppendInt([]byte(`{"at":`), now.UnixNano(), 10), stampEnd...)
}

const (
	stampEnd    = `,"text":"The quick brown fox jumps over the lazy dog. Five wizards jump quickly, and pack my box with jugs."}`
	stampDigits = 19 // until the year 2286

	afterStamp = len("}") // in an event
	inFrame    = len("}}")
)

// stampOf reads the time of an event whose data is stamped, in whose text so many bytes come after it.
func stampOf(frame []byte, after int) (time.Time, bool) {
	at := len(frame) - len(stampEnd) - after - stampDigits
	if at < 0 {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(string(frame[at:at+stampDigits]), 10, 64)
	return time.Unix(0, n), err == nil
}
