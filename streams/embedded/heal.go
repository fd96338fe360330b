package embedded

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// A server whose write to a file has failed once never writes to that stream again, whatever happens to the disk: it has to be restarted.
// [Server.Run] does that, in this process, as soon as writing works.
const (
	lookEvery   = time.Second // unless a test has no time
	looksBroken = 2           // in a row, before anything is done: a stream that is being made looks broken for a moment
	healFiles   = 64          // descriptors that are free
	healTries   = 10          // starts that did not help, before Run fails
	healPause   = 30 * time.Second
	healQuiet   = time.Minute // without a failure, after which it counts as well
	waitingLog  = time.Minute // between two lines that say that it still waits
)

// Run supervises the server until ctx ends. If a write has failed for good, for lack of space or descriptors, it restarts the server as
// soon as these are available; clients reconnect by themselves, and nothing confirmed is lost. It returns an error, with which the process
// should end, if several restarts in a row did not help.
func (s *Server) Run(ctx context.Context) error {
	n := nurse{began: time.Now()}
	for wait.Sleep(ctx, cmp.Or(s.lookEvery, lookEvery)) {
		s.followReserve()
		s.followDisk()
		broken := s.broken()
		s.illness.Store(nil)
		if broken != nil && n.broken > 0 {
			s.illness.Store(&broken)
		}
		switch n.look(time.Since(n.began), broken != nil, func() bool { return s.dir.writable() == nil }) {
		case healFirst:
			s.log.Error("log cannot write, restarting it when it can", "error", broken)
		case healWait:
			s.log.Error("log still cannot write", "error", broken, "needs", s.dir.writable())
		case healRestart:
			s.log.Warn("restarting the log", "try", n.tries, "error", broken)
			switch err := s.Restart(ctx); {
			case ctx.Err() != nil:
				return nil //nolint:nilerr // it was stopped meanwhile
			case err != nil:
				s.log.Error("log not restarted", "try", n.tries, "error", err)
			default:
				s.log.Info("log reachable again", "try", n.tries)
			}
		case healFail:
			return schemas.Wrap(schemas.Unavailable, "look after the log",
				"the log cannot write though there is room, also after it was started again several times: start the process again, and look at the "+
					"disk", broken)
		case healNothing:
		}
	}
	return nil
}

// Refusing returns why new work is refused at once while [Server.Run] knows that the server cannot write: it would not even answer a
// publish. Code: unavailable.
func (s *Server) Refusing() error {
	why := s.illness.Load()
	if why == nil {
		return nil
	}
	return schemas.Wrap(schemas.Unavailable, "publish", "the log cannot write: "+WhyNoWrite((*why).Error()), *why)
}

// healing is a step of [Server.Run].
type healing int

const (
	healNothing healing = iota
	healFirst           // say that it is broken
	healWait            // log that it still fails, and cannot be restarted yet
	healRestart
	healFail
)

// nurse decides when to restart the server. Its times are durations since it began.
type nurse struct {
	began  time.Time
	broken int // looks in a row
	tries  int
	next   time.Duration // not before that
	ill    time.Duration // when it was last broken
	said   time.Duration
}

// look decides after one reading. possible, which reports whether the server could write now, is called only where it matters.
func (n *nurse) look(now time.Duration, broken bool, possible func() bool) healing {
	if !broken {
		n.broken = 0
		if n.tries > 0 && now-n.ill > healQuiet {
			n.tries, n.next = 0, 0
		}
		return healNothing
	}
	n.broken++
	n.ill = now
	switch {
	case n.broken < looksBroken:
		return healNothing
	case n.broken == looksBroken && n.tries == 0:
		n.said = now
		return healFirst
	case now < n.next:
		return healNothing
	case !possible():
		if now-n.said < waitingLog {
			return healNothing
		}
		n.said = now
		return healWait
	case n.tries >= healTries:
		return healFail
	}
	n.next = now + min(time.Second<<n.tries, healPause)
	n.tries++
	n.broken = 0
	return healRestart
}

// broken returns why the server cannot write; nil while it can, or while it is only slow or stopping.
func (s *Server) broken() error {
	srv := s.running.Load()
	if srv == nil {
		return errNotRunning
	}
	h := srv.Healthz(&server.HealthzOptions{Details: true})
	for _, e := range h.Errors {
		if e.Type == server.HealthzErrorJetStream || strings.Contains(e.Error, "write error") {
			return errors.New(e.Error)
		}
	}
	return nil
}

var errNotRunning = errors.New("it is not running")

// writable tests whether files can be created and written in the server's directory.
func (d *storeDir) writable() error {
	const op, piece = "write to the data directory", 64 << 10
	if room := d.room(); room < leastRoom && !d.temp {
		return schemas.OpErrorf(schemas.Exhausted, op, "%s has %d MiB free, at least %d are needed", d.path, room>>20, leastRoom>>20)
	}
	name := filepath.Join(d.path, "write.probe")
	defer os.Remove(name) //nolint:errcheck // it is small, and written over the next time
	if err := os.WriteFile(name, make([]byte, piece), 0o600); err != nil {
		return schemas.Wrap(schemas.Exhausted, op, "a file cannot be written", err)
	}
	var open []fs.File
	defer func() {
		for _, f := range open {
			_ = f.Close() // it was only opened
		}
	}()
	for range healFiles {
		f, err := os.Open(name)
		if err != nil {
			return schemas.Wrap(schemas.Exhausted, op, "too few files can be opened", err)
		}
		open = append(open, f)
	}
	return nil
}

// WhyNoWrite explains why a store cannot write, without the file names of the store's own message.
func WhyNoWrite(text string) string {
	for _, reason := range []error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.EFBIG, unix.EROFS, unix.EIO} {
		if strings.Contains(text, reason.Error()) {
			return reason.Error()
		}
	}
	return "the process that keeps it says why in its log"
}
