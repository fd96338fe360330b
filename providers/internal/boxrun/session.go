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

// Stream is a connection to the program's standard input and outputs.
type Stream interface {
	io.Writer // its standard input
	// Copy passes on the outputs, a piece at a time, until both have ended or the stream is closed.
	Copy(stdout, stderr io.Writer) error
	// Close ends Copy and Write. It may be called more than once.
	Close() error
}

// Session is a command that runs. [Start] begins it; the caller closes it.
type Session struct {
	stream    Stream
	mark      string
	take      func(stderr bool, data []byte)
	complaint complaint

	ready chan struct{} // closed when the program waits for "go" or has refused the command
	over  chan struct{} // closed when the program has ended and all output was passed on
	once  sync.Once
	parts sync.WaitGroup

	mu        sync.Mutex
	firstWord string // the first word
	ends      int    // on how many outputs "end" has arrived
	exit      Exit   // valid when ends is 2
}

// Exit is how a command ended.
type Exit struct {
	Code int  // 128+n if killed by signal n
	OOM  bool // a process of the sandbox was killed meanwhile because memory ran out
}

// Start sends the command to the program on stream, which Close closes. Take receives the command's output, in order within each stream
// and never concurrently; it may block.
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
		_, _ = stream.Write(c.input(nonce, s.mark)) // a failure shows on the outputs
	})
	s.parts.Go(func() {
		_ = stream.Copy(outs[0], outs[1]) // a failure shows as an end without a message
		outs[0].flush()
		outs[1].flush()
		s.takeWords([]string{"gone"})
		s.finish()
	})
	return s
}

// print passes on a piece of output: as a complaint if the program was not ready, else to take.
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

// takeWords processes a message of the program, which it writes to both outputs.
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

// Ready waits until the program has received the command. The command has not been started yet, even if Ready fails. Codes: invalid (the
// directory cannot be entered), exhausted (the box has no room for the input, or for a process), unavailable (the program did not start:
// the text says why).
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

// NotStartedError reports that the program was not started. Text is the output of the container engine or the shell instead.
type NotStartedError struct{ Text string }

func (e *NotStartedError) Error() string {
	if e.Text == "" {
		return "the program in the sandbox did not start"
	}
	return "the program in the sandbox did not start: " + e.Text
}

// Go starts the command. After an error it is unknown whether it was started.
func (s *Session) Go() error { return s.write("go\n") }

// Term sends SIGTERM to all processes that the command has started.
func (s *Session) Term() error { return s.write("term\n") }

// Kill kills all processes that the command has started, without waiting. They have ended when [Session.Over] is closed.
func (s *Session) Kill() error { return s.write("kill\n") }

func (s *Session) write(word string) error {
	if _, err := io.WriteString(s.stream, word); err != nil {
		return fmt.Errorf("speak to the sandbox: %w", err)
	}
	return nil
}

// Mark returns the mark of the command's processes, for [SweepArguments].
func (s *Session) Mark() string { return s.mark }

// Over returns a channel that is closed when the command has ended and all its output was delivered, or when the stream has ended.
func (s *Session) Over() <-chan struct{} { return s.over }

// Exit returns how the command ended. It returns false if the end was not received on both outputs; the end of the command's output may
// then be missing.
func (s *Session) Exit() (e Exit, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends < 2 {
		return Exit{}, false
	}
	return s.exit, true
}

// Close closes the stream, which kills a running command, and waits until no more output is delivered.
func (s *Session) Close() error {
	err := s.stream.Close()
	s.parts.Wait()
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
