package cloud

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Streams of the Connect protocol, https://connectrpc.com/docs/protocol: a frame is a byte of flags, a length of four bytes, and JSON.
const (
	frameHead     = 5
	flagCompress  = 1
	flagEnd       = 2
	longestFrame  = 16 << 20 // bytes
	streamContent = "application/connect+json"
)

// Frames is a stream of messages from a service. Only one goroutine may read it.
type Frames struct {
	client *Client
	call   Call
	body   io.ReadCloser
	cancel context.CancelFunc
	idle   time.Duration
	head   [frameHead]byte
}

// Stream sends a call, without retries, whose answer is a Connect stream of JSON messages. A read fails if nothing arrives for idle. The
// stream ends with ctx; the caller closes it.
func (c *Client) Stream(ctx context.Context, call Call, idle time.Duration) (*Frames, error) {
	message, err := json.Marshal(call.Body)
	if err != nil {
		return nil, fmt.Errorf("encode a request: %w", err)
	}
	body := make([]byte, frameHead, frameHead+len(message))
	binary.BigEndian.PutUint32(body[1:], uint32(len(message)))
	body = append(body, message...)
	res, cancel, err := c.openStream(ctx, call, body, streamContent, idle)
	if err != nil {
		return nil, err
	}
	return &Frames{client: c, call: call, body: res.Body, cancel: cancel, idle: idle}, nil
}

// Next reads the next message. At the end of the stream, which the service marks, the error is io.EOF. A stream that ends without that
// mark, or with an error of the service, returns an [*Error].
func (f *Frames) Next(into any) error {
	clock := time.AfterFunc(f.idle, f.cancel)
	defer clock.Stop()
	flags, text, err := readFrame(f.body, f.head[:])
	if err != nil {
		return f.client.broken(f.call, true, err)
	}
	if flags&flagEnd == 0 {
		if err := json.Unmarshal(text, into); err != nil {
			return f.client.broken(f.call, true, fmt.Errorf("a message is not understood: %w", err))
		}
		return nil
	}
	var end struct {
		Error *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(text, &end); err != nil {
		return f.client.broken(f.call, true, fmt.Errorf("the end is not understood: %w", err))
	}
	if end.Error != nil {
		return &Error{Route: f.call.route(), Kind: end.Error.Code, Sent: true, Message: f.client.clean(f.call, end.Error.Message)}
	}
	return io.EOF
}

// readFrame reads one frame.
func readFrame(r io.Reader, head []byte) (flags byte, text []byte, err error) {
	if _, err := io.ReadFull(r, head); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the stream ended without its last message")
		}
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0]&flagCompress != 0:
		return 0, nil, errors.New("a message is compressed, which was not asked for")
	case size > longestFrame:
		return 0, nil, fmt.Errorf("a message is longer than %d bytes", longestFrame)
	}
	var b bytes.Buffer // grows with the data that arrives, not with the announced size
	if _, err := io.CopyN(&b, r, int64(size)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, fmt.Errorf("a message breaks off: %w", err)
	}
	return head[0], b.Bytes(), nil
}

// Close ends the stream and any read in progress.
func (f *Frames) Close() error {
	f.cancel()
	return f.body.Close()
}
