package vercel

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

//go:embed launch.sh
var launchScript string

const (
	silence     = 45 * time.Second // of a log, after which the sandbox is asked whether there is more
	readFreely  = 1 << 20          // bytes of a log that are read again without such a question
	quietWithin = 15 * time.Second // for that answer
	takenEvery  = 8                // pieces, after which the sandbox is sent how many were taken: half of those that it prints ahead
	patience    = 60 * time.Second // that the program waits for the word to start
	follows     = 6                // of a log in turn that bring nothing, without a sign that the command still runs
	mostWait    = 30 * time.Second // that the service may want to be left alone
	longestRow  = 1 << 20          // of what the program prints, in bytes
)

// process is a running boxrun program in a session, as a detached command of the service; it implements boxrun.Stream. The first Write
// starts it. The program waits for the start message and ends by itself if none comes, so that a lost answer needs no further check.
type process struct {
	in     session
	args   []string
	limit  time.Duration   // after which the service kills it
	ctx    context.Context //nolint:containedctx // its input's life is its own
	cancel context.CancelFunc
	leave  bool // the sandbox ends with it, and nothing is to be taken away
	once   sync.Once
	begun  chan struct{} // closed when id is known
	over   chan struct{} // closed when the program is known to have ended
	parts  sync.WaitGroup
	read   int // bytes of the log, by the latest reading

	mu  sync.Mutex
	dir string // in the sandbox; empty: nothing was asked for yet
	id  string // of the command
	err error  // why something was not written
}

// program returns a process that is not started.
func (s session) program(ctx context.Context, c boxrun.Command) *process {
	p := &process{
		in: s, args: boxrun.Arguments("bash", carry.SearchPath), limit: c.Limit + carry.AloneFor + patience,
		begun: make(chan struct{}), over: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

// Write writes to the program's standard input: first the input that it is started with, then messages.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.write(b)
	if err == nil {
		return len(b), nil
	}
	if p.err == nil {
		p.err = err
	}
	p.cancel() // it is unknown what has arrived: readers need not wait
	return 0, err
}

// A word is written by a short command, which is never tried again. A file records that first: from then on the program's own limit holds.
const wordScript = `[ -p "$1/in" ] && : >"$1/told" && printf %s "$2" >"$1/in"`

func (p *process) write(b []byte) error {
	if p.dir != "" {
		return p.in.run(p.ctx, "word", wordScript, p.dir, string(b))
	}
	name := cloud.Random()
	p.dir = "/tmp/.sandjet-" + name
	if err := p.in.write(p.ctx, p.dir+".first", b); err != nil {
		return err
	}
	id, err := p.in.start(p.ctx, p.limit, launchScript, append([]string{name, strconv.Itoa(int(patience / time.Second))}, p.args...)...)
	if err != nil {
		return err
	}
	p.id = id
	close(p.begun)
	return nil
}

// failed returns why a write failed; nil if none did.
func (p *process) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Copy copies the program's outputs until it has ended. After an interruption it requests the log again, which begins at its start, and
// skips the pieces received before.
func (p *process) Copy(stdout, stderr io.Writer) error {
	err := p.copy(stdout, stderr)
	if refused, ok := errors.AsType[*cloud.Error](err); ok {
		p.fail(refused)
	}
	return err
}

// fail records why nothing arrives from the program, unless there is a reason already.
func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

func (p *process) copy(stdout, stderr io.Writer) error {
	select {
	case <-p.begun:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	taken := make(chan [2]int, 1)
	defer p.parts.Wait()
	defer close(taken)
	p.parts.Go(func() { p.sendTaken(taken) })
	outs := [2]*output{{to: stdout}, {to: stderr}}
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 3 * time.Second}
	failed := 0
	for n := 1; ; n++ {
		before := outs[0].got + outs[1].got
		var err error
		if n == 1 || failed > 0 || p.read <= readFreely || !p.quiet([2]int{outs[0].got, outs[1].got}) {
			err = p.follow(outs, taken)
		}
		switch {
		case p.ctx.Err() != nil:
			return p.ctx.Err()
		case outs[0].ended && outs[1].ended:
			return nil
		case err != nil && final(err, failed):
			return err
		case outs[0].got+outs[1].got > before:
			n, failed = 1, 0
		}
		look := p.settled()
		switch {
		case look == nil: // it still runs
			failed = 0
		case final(look, failed) || errors.Is(look, errNoEnd) && err == nil && failed > 0:
			return look
		default:
			failed++
		}
		pause := max(again.After(n), min(cloud.Wait(err), mostWait))
		if failed >= follows || !wait.Sleep(p.ctx, pause) {
			return cmp.Or(err, look, p.ctx.Err())
		}
	}
}

// final reports whether a log that failed with err must not be requested again. A 404 may be temporary, because a new command may not be
// known everywhere.
func final(err error, failed int) bool {
	code := cloud.StatusOf(err)
	_, heard := errors.AsType[*garbledError](err)
	return heard || code == http.StatusNotFound && failed > 1 ||
		code >= 400 && code < 500 && code != http.StatusNotFound && code != http.StatusTooManyRequests
}

// errNoEnd is what there is of a program that was killed.
var errNoEnd = errors.New("the program in the sandbox has ended, and its log has no end")

// settled returns nil if the command is still running although its log has ended, and an error if the command has ended.
func (p *process) settled() error {
	c := p.in.call(http.MethodGet, "/cmd/"+url.PathEscape(p.id))
	c.Route = "/v2/sandboxes/sessions/{id}/cmd/{cmd}"
	var said struct {
		Command command `json:"command"`
	}
	c.Into = &said
	if _, err := p.in.p.client.Do(p.ctx, c); err != nil {
		return err
	}
	if said.Command.Exit != nil {
		return errNoEnd
	}
	return nil
}

// follow reads the log once, from its beginning.
func (p *process) follow(outs [2]*output, taken chan [2]int) error {
	c := p.in.call(http.MethodGet, "/cmd/"+url.PathEscape(p.id)+"/logs")
	c.Route = "/v2/sandboxes/sessions/{id}/cmd/{cmd}/logs"
	lines, err := p.in.p.client.Lines(p.ctx, c, p.in.p.silence)
	if err != nil {
		return err
	}
	defer lines.Close() //nolint:errcheck // it was only read
	outs[0].rest, outs[1].rest, p.read = nil, nil, 0
	sent := outs[0].got + outs[1].got
	if sent > 0 {
		sent = -takenEvery // at once: it is unknown whether the sandbox got the last one
	}
	for {
		var l line
		got := [2]int{outs[0].got, outs[1].got}
		if err := lines.NextWhile(&l, func() bool { return p.quiet(got) }); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if l.Command != nil {
			continue
		}
		text, err := l.text(c.Route, p.in.p.client.Clean)
		if err != nil {
			return err
		}
		p.read += len(text)
		o := outs[0]
		if l.Stream == "stderr" {
			o = outs[1]
		}
		if err := o.take(text, p.takeWord); err != nil {
			return err
		}
		if now := outs[0].got + outs[1].got; now-sent >= takenEvery {
			sent = now
			select {
			case <-taken: // the one before was not sent
			default:
			}
			taken <- [2]int{outs[0].got, outs[1].got}
		}
	}
}

// A folder that is gone, and a program that has ended, have more to say.
const quietScript = `[ -d "$1" ] && [ ! -e "$1/over" ] || exit 1
for out in "o $2" "e $3"; do
  printed=0
  [ ! -e "$1/${out%% *}.printed" ] || read -r printed <"$1/${out%% *}.printed"
  [ "$printed" = "${out#* }" ] || exit 1
done`

// quiet reports whether the program is running and has printed no more than these pieces, by asking the sandbox: reading the log again
// could take long, because it begins at its start.
func (p *process) quiet(got [2]int) bool {
	p.mu.Lock()
	dir := p.dir
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, quietWithin)
	defer cancel()
	return p.in.run(ctx, "quiet", quietScript, dir, strconv.Itoa(got[0]), strconv.Itoa(got[1])) == nil
}

// takeWord handles a message of the program.
func (p *process) takeWord(word string) error {
	switch word {
	case "over":
		select {
		case <-p.over:
		default:
			close(p.over)
		}
		return nil
	case "full":
		err := schemas.OpErrorf(schemas.Exhausted, "run", "the sandbox has no room for a command")
		p.fail(err)
		return &garbledError{err}
	}
	return &garbledError{errors.New("what the sandbox says of its program is not understood: " + excerpt(word))}
}

// sendTaken reports to the sandbox how many pieces were received, so that it prints more. If that fails permanently the program waits, and
// ends at its time limit.
func (p *process) sendTaken(taken <-chan [2]int) {
	const script = `[ -d "$1" ] || exit 0
echo "$2" >"$1/o.next" && mv "$1/o.next" "$1/o.taken" && echo "$3" >"$1/e.next" && mv "$1/e.next" "$1/e.taken" || [ ! -d "$1" ]`
	for n := range taken {
		if err := p.in.run(p.ctx, "taken", script, p.dir, strconv.Itoa(n[0]), strconv.Itoa(n[1])); err != nil && p.ctx.Err() == nil {
			p.in.p.log.Warn("output not acknowledged, the command may wait", "session", p.in.id, "error", err)
		}
	}
}

// finish ends a program that has not ended, and takes away what is kept of it. Output of processes that still hold a stream is lost from
// now on.
const finish = `[ ! -p "$1/in" ] || timeout 2 bash -c 'printf "kill\n" >"$1"' kill "$1/in"
mv "$1" "$1.gone" 2>/dev/null && rm -rf "$1.gone"; rm -f "$1.first"; true`

// overSoon is how long the word that the program has ended may come after its outputs' ends.
const overSoon = 200 * time.Millisecond

// Close ends Copy and Write, and also the program and its command if they have not ended.
func (p *process) Close() error {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), endTimeout)
		defer cancel()
		ended := p.leave || p.ended()
		p.cancel()
		p.mu.Lock()
		dir := p.dir
		p.mu.Unlock()
		if dir != "" && !ended {
			_ = p.in.run(ctx, "sweep", finish, dir) // the sandbox may be gone: then so is the program
		}
	})
	return nil
}

// ended reports whether the program is known to have ended; it then removes its folder itself.
func (p *process) ended() bool {
	clock := time.NewTimer(overSoon)
	defer clock.Stop()
	select {
	case <-p.over:
		return true
	case <-clock.C:
	case <-p.ctx.Done():
	}
	return false
}

// output is one output stream of the program, which arrives in pieces.
type output struct {
	to    io.Writer
	got   int // pieces
	ended bool
	rest  []byte // the beginning of a line
}

// garbledError is the error for log lines that only another program can have written.
type garbledError struct{ err error }

func (e *garbledError) Error() string { return e.err.Error() }
func (e *garbledError) Unwrap() error { return e.err }

// take processes a piece of the log, which may begin and end within a line. Say receives the program's messages.
func (o *output) take(text string, say func(word string) error) error {
	o.rest = append(o.rest, text...)
	for {
		row, rest, whole := bytes.Cut(o.rest, []byte{'\n'})
		if !whole {
			break
		}
		o.rest = rest
		if err := o.row(string(bytes.TrimSuffix(row, []byte{'\r'})), say); err != nil {
			return err
		}
	}
	if len(o.rest) > longestRow {
		return &garbledError{errors.New("what the sandbox prints is not a piece of output")}
	}
	return nil
}

// row processes a line of the log: a piece ("1 aGVsbG8K"), the end of the output ("1 end") or a message ("0 over").
func (o *output) row(text string, say func(word string) error) error {
	number, data, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n < 0 || n > o.got+1 || data == "" || data == "end" && n > o.got:
		return &garbledError{errors.New("what the sandbox says of its output is not understood: " + excerpt(text))}
	case n == 0 && data != "end":
		return say(data)
	case data == "end":
		o.ended = n == o.got
		return nil
	case n <= o.got:
		return nil // it came before
	}
	piece, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return &garbledError{errors.New("a piece of output is not understood")}
	}
	o.got = n
	_, err = o.to.Write(piece)
	return err
}
