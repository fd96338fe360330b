package deno

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	dialWithin  = 30 * time.Second
	pingEvery   = 2 * time.Second // as the vendor's client does
	silence     = 20 * time.Second
	writeWithin = 15 * time.Second
	mostMessage = 8 << 20 // bytes of one of the sandbox's
	mostStream  = 4 << 20 // bytes of one of its streams
	mostStreams = 256     // of its at a time
)

// link is a connection to a sandbox. Its methods are safe for concurrent use. The caller that opened it closes it.
type link struct {
	conn *websocket.Conn
	out  chan []byte
	over chan struct{} // closed when it has broken, or was closed
	once sync.Once
	work sync.WaitGroup

	mu      sync.Mutex
	next    int64
	waiting map[int64]chan event
	streams map[int64]*stream // of the sandbox, by its ids; they may begin before the answer that names them, or after
	err     error             // why it is over
}

// stream collects the output of a process. Data may be read once done is closed.
type stream struct {
	began bool
	data  []byte
	err   error
	done  chan struct{} // closed at its end
}

// brokenError reports that a connection ended before a request was answered: it is unknown whether the request was carried out.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return "the connection to the sandbox broke: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

var errTooLong = errors.New("the sandbox said more than is taken at a time")

// newLink starts the goroutines of a link over a connection.
func newLink(conn *websocket.Conn) *link {
	l := &link{
		conn: conn, out: make(chan []byte), over: make(chan struct{}), waiting: map[int64]chan event{}, streams: map[int64]*stream{},
	}
	conn.SetReadLimit(mostMessage)
	l.work.Go(l.read)
	l.work.Go(l.write)
	return l
}

// Close closes the link and ends all waiting calls.
func (l *link) Close() {
	l.end(errors.New("it was closed"))
	l.work.Wait()
}

// end records why the link has ended, and ends all streams.
func (l *link) end(err error) {
	l.once.Do(func() {
		l.mu.Lock()
		l.err = err
		for _, s := range l.streams {
			s.finish(&brokenError{err})
		}
		l.mu.Unlock()
		close(l.over)
		_ = l.conn.Close()
	})
}

// broken returns why the link has ended, as a brokenError.
func (l *link) broken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &brokenError{l.err}
}

// read processes the sandbox's messages until the link ends. The sandbox answers frequent pings, so if it is silent for too long the link
// ends.
func (l *link) read() {
	for {
		_ = l.conn.SetReadDeadline(time.Now().Add(silence)) // it shows with the next read
		kind, text, err := l.conn.ReadMessage()
		switch {
		case err != nil:
			l.end(err)
			return
		case kind == websocket.TextMessage && string(text) == "pong":
			continue
		}
		e, err := decode(text)
		if err == nil {
			err = l.take(e)
		}
		if err != nil {
			l.end(err)
			return
		}
	}
}

// write sends queued messages, and pings.
func (l *link) write() {
	clock := time.NewTicker(pingEvery)
	defer clock.Stop()
	for {
		text := []byte("ping")
		select {
		case text = <-l.out:
		case <-clock.C:
		case <-l.over:
			return
		}
		_ = l.conn.SetWriteDeadline(time.Now().Add(writeWithin)) // as above
		if err := l.conn.WriteMessage(websocket.TextMessage, text); err != nil {
			l.end(err)
			return
		}
	}
}

// take passes an event to the waiting call or stream.
func (l *link) take(e event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.answers {
		if c := l.waiting[e.id]; c != nil {
			delete(l.waiting, e.id)
			c <- e // it has room for one
		}
		return nil
	}
	switch s := l.streams[e.id]; {
	case e.part == "start" && s == nil:
		if len(l.streams) >= mostStreams {
			return errTooLong
		}
		l.streams[e.id] = &stream{began: true, done: make(chan struct{})}
	case e.part == "start":
		s.began = true
	case s == nil: // of a stream without a reader, as after a missing answer
	case e.part == "enqueue" && s.open() && len(s.data)+len(e.data) > mostStream:
		s.finish(errTooLong)
	case e.part == "enqueue" && s.open():
		s.data = append(s.data, e.data...)
	case e.part == "end":
		s.finish(nil)
	case e.part == "error":
		s.finish(errors.New("the sandbox could not read what a process printed"))
	}
	return nil
}

// open reports whether the stream has not ended. The link's lock is held, as in the methods below.
func (s *stream) open() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

func (s *stream) finish(err error) {
	if s.open() {
		s.err = err
		close(s.done)
	}
}

// claim returns the stream with the id in an answer; it may have begun before.
func (l *link) claim(id int64) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streams[id]
	if s == nil {
		s = &stream{done: make(chan struct{})}
		l.streams[id] = s
		if l.err != nil {
			s.finish(&brokenError{l.err})
		}
	}
	return s
}

// drop removes a stream that was read or is not needed.
func (l *link) drop(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, id)
}

// call sends a request and waits for its result. After an error other than *rpcError it is unknown whether the request was carried out.
func (l *link) call(ctx context.Context, method string, params, into any) error {
	answer := make(chan event, 1)
	l.mu.Lock()
	id := l.next
	l.next++
	l.waiting[id] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, id)
		l.mu.Unlock()
	}()
	text, err := encode(id, method, params)
	if err != nil {
		return err
	}
	select {
	case l.out <- text:
	case <-l.over:
		return l.broken()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case e := <-answer:
		if e.refused != nil {
			return e.refused
		}
		return resultOf(e.result, into)
	case <-l.over:
		return l.broken()
	case <-ctx.Done():
		return ctx.Err()
	}
}
