package spool

import (
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Process is a running boxrun program in a sandbox, for services without input streams; it implements boxrun.Stream. The first Write
// starts it. The program waits for the start message and ends by itself if none comes, so that a lost answer needs no further check.
type Process struct {
	// Leave is whether the sandbox ends with the program, so that nothing has to be removed. It must be set before Close.
	Leave bool

	box    Box
	want   string // required epoch of the sandbox; empty: any
	args   []string
	ctx    context.Context //nolint:containedctx // for writes of the input, which have no context of their own
	cancel context.CancelFunc
	once   sync.Once
	begun  chan struct{} // closed when dir is set

	mu    sync.Mutex
	name  string // secret name of its folder; empty: no start was tried
	dir   string // folder in the sandbox with its input and output; empty: not started
	parts int    // number of input parts that were written
	err   error  // the first failed write
	ended bool   // the program has ended, and its folder was removed
}

// New returns a process that is not started, for a sandbox that must be in the epoch want (empty: any). It uses the values of ctx, but not
// its end. The caller closes it.
func New(ctx context.Context, box Box, want string, args []string) *Process {
	p := &Process{box: box, want: want, args: args, begun: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

const (
	longestFirst = 32 << 10 // bytes of input passed at the start; more is uploaded as a file
	longestWord  = 64       // bytes of input passed as an argument; more is uploaded as a file
)

// Write writes to the program's standard input; the first call starts it.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.write(b)
	if err == nil {
		return len(b), nil
	}
	if p.err == nil {
		p.err = err
	}
	p.cancel() // it is unknown how much arrived, so readers need not wait
	return 0, err
}

func (p *Process) write(b []byte) error {
	if p.dir == "" {
		first := b
		if len(b) > longestFirst {
			first = nil
		}
		if err := p.begin(first); err != nil || first != nil {
			return err
		}
	}
	p.parts++
	part := p.dir + "/part." + strconv.Itoa(p.parts)
	if len(b) <= longestWord {
		_, err := Run(p.ctx, p.box, Word, once+`printf %s "$3" >"$1/in"`, p.dir, part, string(b))
		return err
	}
	if err := p.box.Upload(p.ctx, part, b); err != nil {
		return err
	}
	_, err := Run(p.ctx, p.box, Input, once+`cat "$2" >"$1/in" && rm "$2"`, p.dir, part)
	return err
}

// once is the beginning of a script that writes a part of the input. It exits if that part was written already, or is being written: then
// this is a repetition.
const once = `[ -p "$1/in" ] || exit; mkdir "$2.said" 2>/dev/null || exit 0
`

// begin starts the program with the beginning of its input. It is never retried. Code: not_found, the sandbox is in another epoch.
func (p *Process) begin(input []byte) error {
	p.name = cloud.Random()
	args := append([]string{p.name, p.want, base64.StdEncoding.EncodeToString(input)}, p.args...)
	said, err := p.box.Execute(p.ctx, Begin, endTimeout, beginScript, args...)
	if err != nil {
		return err
	}
	words := strings.Fields(said.Result)
	switch {
	case len(words) == 1 && words[0] == wordAnother:
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox is gone, or stopped: reserve it again")
	case len(words) == 1 && words[0] == wordFull:
		return schemas.OpErrorf(schemas.Exhausted, "run", "the sandbox has no room for a command")
	case said.Exit != 0 || len(words) != 2 || words[0] != wordBegun:
		return schemas.OpErrorf(schemas.Unavailable, "run", "the sandbox does not start the command: %d, %s", said.Exit, Excerpt(said.Result))
	}
	p.dir = words[1]
	close(p.begun)
	return nil
}

// Failed returns why a write failed; nil if none did.
func (p *Process) Failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Copy copies the program's outputs until it has ended.
func (p *Process) Copy(stdout, stderr io.Writer) error {
	select {
	case <-p.begun:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	got := map[string]int{} // number of pieces received, by output
	outputs := map[string]io.Writer{"o": stdout, "e": stderr}
	for {
		said, err := p.box.Execute(p.ctx, Fetch, fetchFor+fetchSpan, fetchScript, p.dir, strconv.Itoa(got["o"]), strconv.Itoa(got["e"]),
			strconv.Itoa(int(fetchFor/time.Second)))
		if err != nil {
			return cmp.Or(p.ctx.Err(), err)
		}
		pieces, over, err := readPieces(said.Result)
		if err != nil {
			return err
		}
		for _, one := range pieces {
			if one.n != got[one.output]+1 {
				continue // received before
			}
			got[one.output] = one.n
			if _, err := outputs[one.output].Write(one.data); err != nil {
				return err
			}
		}
		if over {
			p.over()
			return nil
		}
	}
}

func (p *Process) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// finish ends a program that may not have received all messages, and removes its stored output. From then on, output of processes that
// still hold a stream is lost. The folder is in one of two places.
const finish = `[ -z "$2" ] || mkdir "/tmp/.sandjet-$1.no" # it may begin just now: either that sees this, or this sees its folder
for d in /dev/shm/.sandjet-"$1" /tmp/.sandjet-"$1"; do
[ -d "$d" ] || continue
[ ! -p "$d/in" ] || timeout 2 bash -c 'printf "kill\n" >"$1"' kill "$d/in"
mv "$d" "$d.gone" 2>/dev/null && rm -rf "$d.gone" "/tmp/.sandjet-$1.no"
done; true`

// Close ends Copy and Write. It also ends the program and its command if they have not ended, even if it is unknown whether the program
// was started.
func (p *Process) Close() error {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), endTimeout)
		defer cancel()
		p.cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.name != "" && !p.Leave && !p.ended {
			unsure := ""
			if p.dir == "" {
				unsure = "unsure"
			}
			_, _ = Run(ctx, p.box, Finish, finish, p.name, unsure) // if the sandbox is gone, so is the program
		}
	})
	return nil
}
