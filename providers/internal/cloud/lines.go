package cloud

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// longestLine is the maximal length of a line of a stream, in bytes.
const longestLine = 4 << 20

// Lines is a stream of JSON values from a service, one per line (application/x-ndjson). Only one goroutine may read it.
type Lines struct {
	client *Client
	call   Call
	body   io.ReadCloser
	lines  *bufio.Scanner
	cancel context.CancelFunc
	idle   time.Duration
}

// Lines sends a call, without retries and without a body, whose answer is a stream of lines. A read fails if nothing arrives for idle. The
// stream ends with ctx; the caller closes it.
func (c *Client) Lines(ctx context.Context, call Call, idle time.Duration) (*Lines, error) {
	res, cancel, err := c.openStream(ctx, call, nil, "", idle)
	if err != nil {
		return nil, err
	}
	l := &Lines{client: c, call: call, body: res.Body, lines: bufio.NewScanner(res.Body), cancel: cancel, idle: idle}
	l.lines.Buffer(nil, longestLine)
	return l, nil
}

// Next decodes the next line. The error is io.EOF at the end of the answer, whose meaning depends on the service, and an [*Error] if the
// stream breaks, is silent for too long or is not valid.
func (l *Lines) Next(into any) error { return l.NextWhile(into, nil) }

// NextWhile is [Lines.Next] for a stream that may be silent for longer than idle as long as still returns true. A goroutine calls still
// each time that idle has passed, possibly once after the line has arrived. Nil: silence is not allowed.
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

// NextLine decodes the next non-empty line. At the end the error is io.EOF.
func NextLine(lines *bufio.Scanner, into any) error {
	for lines.Scan() {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if err := json.Unmarshal(text, into); err != nil {
			if broken := lines.Err(); broken != nil { // the line is incomplete
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

// Close ends the stream and any read in progress.
func (l *Lines) Close() error {
	l.cancel()
	return l.body.Close()
}
