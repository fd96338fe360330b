package cloud

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// longestLine is how long a line of a stream may be, in bytes.
const longestLine = 4 << 20

// Lines is a stream of JSON values, one on each line, that a service sends (application/x-ndjson). One goroutine reads it.
type Lines struct {
	client *Client
	call   Call
	body   io.ReadCloser
	lines  *bufio.Scanner
	cancel context.CancelFunc
	idle   time.Duration
}

// Lines sends a call once, without a body, whose answer is a stream of lines. It is cut when nothing has come for as long as idle says,
// while a caller reads. It ends with ctx; the caller closes it.
func (c *Client) Lines(ctx context.Context, call Call, idle time.Duration) (*Lines, error) {
	ctx, cancel := context.WithCancel(ctx)
	clock := time.AfterFunc(idle, cancel)
	res, sent, err := c.send(ctx, call, nil, "")
	defer clock.Stop() // after an answer that is an error, which may come slowly
	if err != nil {
		cancel()
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer cancel()
		defer res.Body.Close() //nolint:errcheck // it was only read
		text, err := io.ReadAll(io.LimitReader(res.Body, longestMessage*4))
		if err != nil {
			return nil, c.broken(call, sent, err)
		}
		return nil, c.refused(call, res, text)
	}
	l := &Lines{client: c, call: call, body: res.Body, lines: bufio.NewScanner(res.Body), cancel: cancel, idle: idle}
	l.lines.Buffer(nil, longestLine)
	return l, nil
}

// Next reads the next line. At the end of the answer it is io.EOF: what the service means by that is its own matter. A stream
// that breaks, is silent for too long or says what is not understood ends with an [*Error].
func (l *Lines) Next(into any) error { return l.NextWhile(into, nil) }

// NextWhile is [Lines.Next] of a stream that may be silent for longer where still says so, which is asked after each such time, by a
// goroutine of its own, and may be asked when the line has come. Nil: it may not.
func (l *Lines) NextWhile(into any, still func() bool) error {
	var (
		mu    sync.Mutex
		over  bool
		clock *time.Timer
		check func()
	)
	check = func() {
		more := still != nil && still()
		mu.Lock()
		defer mu.Unlock()
		switch {
		case over:
		case more:
			clock = time.AfterFunc(l.idle, check)
		default:
			l.cancel()
		}
	}
	mu.Lock()
	clock = time.AfterFunc(l.idle, check)
	mu.Unlock()
	err := NextLine(l.lines, into)
	mu.Lock()
	over = true
	clock.Stop()
	mu.Unlock()
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return l.client.broken(l.call, true, err)
}

// NextLine decodes the next line that is not empty. At the end it is io.EOF.
func NextLine(lines *bufio.Scanner, into any) error {
	for lines.Scan() {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if err := json.Unmarshal(text, into); err != nil {
			if broken := lines.Err(); broken != nil { // it is the beginning of a line
				return fmt.Errorf("a line breaks off: %w", broken)
			}
			return fmt.Errorf("a line is not understood: %w", err)
		}
		return nil
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("a line breaks off: %w", err)
	}
	return io.EOF
}

// Close ends the stream, also for one who reads it.
func (l *Lines) Close() error {
	l.cancel()
	return l.body.Close()
}
