package workers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	liveDelay    = 50 * time.Millisecond  // how long the first output waits for more to go with it
	liveDelayMax = 250 * time.Millisecond // what that grows to, one millisecond with each piece
	livePiece    = 16 << 10               // bytes that are sent without waiting
	liveCap      = 1 << 20                // bytes of a call that are sent live
	liveWindow   = 32                     // pieces that may be on their way
)

// outputStreamer sends a run's output as it comes: collected for a moment, cut at UTF-8 boundaries, up to a
// cap. What is sent is a beginning of each stream without holes; after the first piece that the log
// did not take there are no more. The result does not depend on any of it.
//
// A log that takes pieces slowly slows the command down.
type outputStreamer struct {
	// publish sends a piece and returns what waits for its arrival.
	publish func(schemas.OutputData) (wait func(context.Context) error, err error)
	call    schemas.CallID
	attempt int

	mu       sync.Mutex
	streams  [2]pending // stdout, stderr
	sent     int        // bytes
	pieces   int
	capped   bool
	broken   error
	timer    *time.Timer
	onTheWay []func(context.Context) error
}

var errAbandoned = errors.New("the run was left to itself")

type pending struct {
	data   []byte // printed, not sent
	offset int64  // of data's first byte in its stream
}

// write takes a chunk. It is what providers.Command.Output wants.
func (l *outputStreamer) write(c providers.Chunk) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.capped || l.broken != nil || len(c.Data) == 0 {
		return
	}
	i := 0
	if c.Stderr {
		i = 1
	}
	l.streams[i].data = append(l.streams[i].data, c.Data...)
	if len(l.streams[i].data) >= livePiece {
		l.flush(i, false)
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.delay(), l.tick)
	}
}

// delay grows with what was sent, so that a call that prints a line now and then for ten minutes
// leaves some thousand events, not tens of thousands.
func (l *outputStreamer) delay() time.Duration {
	return min(liveDelay+time.Duration(l.pieces)*time.Millisecond, liveDelayMax)
}

func (l *outputStreamer) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.flush(0, false)
	l.flush(1, false)
}

// end sends what is left and waits until the log has everything, or ctx ends. It returns why live
// output stopped early, if it did.
func (l *outputStreamer) end(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.flush(0, true)
	l.flush(1, true)
	l.await(ctx, 0)
	return l.broken
}

// abandon ends the output of a run that is left to itself: nothing of it follows the result.
func (l *outputStreamer) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = errAbandoned
	l.streams = [2]pending{}
}

// flush sends what stream i has, keeping back the begin of a character unless it is the last time.
func (l *outputStreamer) flush(i int, last bool) {
	s := &l.streams[i]
	for len(s.data) > 0 && !l.capped && l.broken == nil {
		n := min(len(s.data), schemas.MaxChunk)
		if n < len(s.data) || !last {
			n = schemas.WholeText(s.data[:n])
		}
		if n == 0 {
			return
		}
		if l.sent+n > liveCap {
			l.capped = true
			l.send(schemas.OutputData{Stream: streamName(i), Offset: s.offset, Capped: true})
			break
		}
		l.send(schemas.OutputData{Stream: streamName(i), Offset: s.offset, Text: strings.ToValidUTF8(string(s.data[:n]), "\uFFFD"), Bytes: n})
		l.sent += n
		s.offset += int64(n)
		s.data = append(s.data[:0], s.data[n:]...)
	}
	if l.capped || l.broken != nil {
		l.streams = [2]pending{} // nothing more will be sent: do not hold it
	}
}

func (l *outputStreamer) send(d schemas.OutputData) {
	d.Call, d.Attempt = l.call, l.attempt
	wait, err := l.publish(d)
	if err != nil {
		l.broken = err
		return
	}
	l.pieces++
	l.onTheWay = append(l.onTheWay, wait)
	l.await(context.Background(), liveWindow)
}

// await waits until at most n pieces are on their way. A publish has an end of its own.
func (l *outputStreamer) await(ctx context.Context, n int) {
	for len(l.onTheWay) > n {
		err := l.onTheWay[0](ctx)
		l.onTheWay = l.onTheWay[1:]
		if err != nil && l.broken == nil {
			l.broken = err
		}
	}
}

func streamName(i int) string {
	return [...]string{"stdout", "stderr"}[i]
}
