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

// follower is a client with one WebSocket. It is cheap, so that mainly the gateway is measured: it decodes nothing. It knows the beginning
// of a frame and compares the bytes of cursors. As each frame names its predecessor, it detects each event that is lost, doubled or out of
// order. It belongs to one goroutine.
type follower struct {
	conn net.Conn
	conv string
	buf  []byte // bytes that were read and not processed yet
	room []byte // buffer of which buf is a part

	lead   []byte // beginning of a frame with an event, up to its cursor
	last   []byte // cursor of the last event; at first that of the attachment
	events int
	faults int  // events that do not follow the previous one, and gaps
	live   bool // the replay has ended
	read   int  // bytes, from the socket

	batch    bool      // it requests replays in batches
	inflate  io.Reader // decompresses messages; nil if compression is not used
	unpacked bytes.Buffer

	each func(frame []byte) // called for each event; may be nil. It must not retain the frame
}

// errBusy is returned while the gateway refuses temporarily.
var errBusy = errors.New("the gateway asks to come back")

const (
	followWithin  = 2 * time.Minute // limit of each wait of a follower
	startCursor   = "-1"
	presentCursor = "now"
	maskBit       = 0x80
	opText        = 0x81
	opPing        = 0x89
	opPong        = 0x8a
	opClose       = 0x88
)

// dialFollower opens a socket. room is the size of its buffer in bytes, into which each event must fit.
func dialFollower(ctx context.Context, address, key string, room int) (*follower, error) {
	return dialOffering(ctx, address, key, room, "")
}

// dialOffering opens a socket with an additional header.
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
	_ = conn.SetDeadline(time.Now().Add(followWithin)) // an error shows below
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

// fill reads more bytes behind the unprocessed ones.
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

// attach starts to follow a conversation after a cursor.
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
	_ = f.conn.SetWriteDeadline(time.Now().Add(followWithin)) // an error shows at the write
	if _, err := f.conn.Write(clientFrame(opText, text)); err != nil {
		return fmt.Errorf("write to the socket: %w", err)
	}
	return nil
}

// clientFrame returns a frame of a client, masked with zeros.
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

// until reads frames until one has this beginning. It returns an error if the socket ends or an error frame arrives.
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

// The beginnings of frames.
const (
	opLive     = `{"op":"live"`
	opGap      = `{"op":"gap"`
	opError    = `{"op":"error"`
	opDetached = `{"op":"detached"`
)

// next returns the next message, which is valid until the next call.
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

// splitFrame returns the first frame of a server in b; size is 0 if it is incomplete.
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

// take processes a message.
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

// follow processes an event.
func (f *follower) follow(frame []byte) {
	cur, rest, _ := bytes.Cut(frame[len(f.lead):], []byte(`"`))
	prev, ok := bytes.CutPrefix(rest, []byte(`,"prev":"`))
	switch {
	case string(f.last) == presentCursor: // earlier events were not requested
	case !ok || len(prev) <= len(f.last) || !bytes.HasPrefix(prev, f.last) || prev[len(f.last)] != '"':
		f.faults++
	}
	f.last = append(f.last[:0], cur...)
	f.events++
	if f.each != nil {
		f.each(frame)
	}
}

// cut closes the socket with a reset, like a lost network, so that the kernel need not remember the connection.
func (f *follower) cut() {
	if tcp, ok := f.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // if it fails, the kernel remembers it for a minute
	}
	_ = f.conn.Close()
}

// stamped returns event data of about 300 bytes, with the time at a fixed distance from its end.
func stamped(now time.Time) []byte {
	return append(strconv.AppendInt([]byte(`{"at":`), now.UnixNano(), 10), stampEnd...)
}

const (
	stampEnd    = `,"text":"The quick brown fox jumps over the lazy dog. Five wizards jump quickly, and pack my box with jugs."}`
	stampDigits = 19 // until the year 2286

	afterStamp = len("}") // bytes after the stamp in an event
	inFrame    = len("}}")
)

// stampOf returns the time of stamped event data in a frame, with that many bytes after the data.
func stampOf(frame []byte, after int) (time.Time, bool) {
	at := len(frame) - len(stampEnd) - after - stampDigits
	if at < 0 {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(string(frame[at:at+stampDigits]), 10, 64)
	return time.Unix(0, n), err == nil
}
