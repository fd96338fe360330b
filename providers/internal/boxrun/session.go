package boxrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// Stream is the program's standard input and outputs.
type Stream interface {
	io.Writer // its standard input
	// Copy hands over its outputs, a piece at a time, until both have ended or the stream is closed.
	Copy(stdout, stderr io.Writer) error
	// Close ends Copy and Write. It may be called more than once.
	Close() error
}

// Session is one command on its way. [Start] begins it, and its caller closes it.
type Session struct {
	stream    Stream
	mark      string
	take      func(stderr bool, data []byte)
	complaint complaint

	ready chan struct{} // closed when the program waits for "go", or has refused
	over  chan struct{} // closed when it has ended, and all output was handed over
	once  sync.Once
	parts sync.WaitGroup

	mu        sync.Mutex
	firstWord string // the first word
	ends      int    // outputs on which "end" has arrived
	exit      Exit   // holds when it has arrived on both
}

// Exit is how a command ended.
type Exit struct {
	Code int  // 128+n when killed by signal n
	OOM  bool // a process of the box was killed for want of memory meanwhile
}

// Start sends the command to the program on stream, which it closes in the end. Take gets what the command prints, in
// order for each output, never concurrently, and may block.
func Start(stream Stream, c Command, take func(stderr bool, data []byte)) *Session {
	s := &Session{stream: stream, mark: newMark(), take: take, ready: make(chan struct{}), over: make(chan struct{})}
	if c.ID != "" {
		s.mark = MarkOf(c.ID)
	}
	nonce := secret()
	outs := [2]*output{}
	for i := range outs {
		o := &output{mark: []byte("\x01" + nonce + " ")}
		o.say = func(words []string) { s.takeWords(words) }
		o.take = func(p []byte) { s.print(o.ready, i == 1, p) }
		outs[i] = o
	}
	s.parts.Go(func() {
		_, _ = stream.Write(c.input(nonce, s.mark)) // that it failed shows at the outputs
	})
	s.parts.Go(func() {
		_ = stream.Copy(outs[0], outs[1]) // that it failed shows as an end without a word
		outs[0].flush()
		outs[1].flush()
		s.takeWords([]string{"gone"})
		s.finish()
	})
	return s
}

// print hands on what an output had.
func (s *Session) print(ready, stderr bool, p []byte) {
	if !ready {
		s.complaint.add(p)
		return
	}
	for len(p) > 0 {
		n := min(len(p), schemas.MaxChunk)
		s.take(stderr, p[:n])
		p = p[n:]
	}
}

// takeWords takes a line of the program, which comes on each output.
func (s *Session) takeWords(words []string) {
	s.mu.Lock()
	first := s.firstWord == ""
	if first {
		s.firstWord = words[0]
	}
	whole := false
	if len(words) == 3 && words[0] == "end" {
		code, err := strconv.Atoi(words[1])                                   //nolint:gosec // there are three
		if kills, err2 := strconv.Atoi(words[2]); err == nil && err2 == nil { //nolint:gosec // as above
			s.exit = Exit{Code: code, OOM: kills > 0}
			s.ends++
			whole = s.ends == 2
		}
	}
	s.mu.Unlock()
	if first {
		close(s.ready)
	}
	if whole {
		s.finish()
	}
}

func (s *Session) finish() { s.once.Do(func() { close(s.over) }) }

// Ready waits until the program has all that it needs. Nothing has been run yet, also where it fails. Codes: invalid
// (the directory cannot be entered), exhausted (the box has no room for the input, or no process),
// unavailable (the program did not start: the text says why).
func (s *Session) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	word := s.firstWord
	s.mu.Unlock()
	switch word {
	case "ready":
		return nil
	case "nodirectory":
		return schemas.Invalidf("dir", "the working directory cannot be entered")
	case "full":
		return schemas.OpErrorf(schemas.Exhausted, "run", "the sandbox has no room for the input of the command")
	default:
		return &NotStartedError{Text: s.complaint.String()}
	}
}

// NotStartedError says that the program was not started. Text is what the engine or a shell has said instead.
type NotStartedError struct{ Text string }

func (e *NotStartedError) Error() string {
	if e.Text == "" {
		return "the program in the sandbox did not start"
	}
	return "the program in the sandbox did not start: " + e.Text
}

// Go starts the command. After an error it is unknown whether it was started.
func (s *Session) Go() error { return s.write("go\n") }

// Term asks all that the command has started to end.
func (s *Session) Term() error { return s.write("term\n") }

// Kill kills all that the command has started. It has when [Session.Over] is closed.
func (s *Session) Kill() error { return s.write("kill\n") }

func (s *Session) write(word string) error {
	if _, err := io.WriteString(s.stream, word); err != nil {
		return fmt.Errorf("speak to the sandbox: %w", err)
	}
	return nil
}

// Mark is that of the command's processes, for [SweepArguments].
func (s *Session) Mark() string { return s.mark }

// Over is closed when the command has ended and all its output was handed over, or the stream has ended.
func (s *Session) Over() <-chan struct{} { return s.over }

// Exit is how the command ended; not ok if that did not arrive on both outputs. Then what was handed over may lack an end of what the
// command printed.
func (s *Session) Exit() (e Exit, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends < 2 {
		return Exit{}, false
	}
	return s.exit, true
}

// Close closes the stream, which kills the command if it still runs, and waits until no output is handed over any more.
func (s *Session) Close() error {
	err := s.stream.Close()
	s.parts.Wait()
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
