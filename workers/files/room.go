package files

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// measuredFor is how long a measure of a workspace is believed, with what this worker has admitted since added to it.
	measuredFor = 30 * time.Second
	// mostMeasured is how many workspaces' measures are held.
	mostMeasured = 1000
)

// Room limits the files of workspaces whose store has no limits: their number, the bytes of all and of one. Several workers that write to
// one workspace can exceed a limit by what they write within half a minute. Its methods may be called from many goroutines. The nil Room
// has no limits.
type Room struct {
	Files           int
	Bytes, FileSize int64

	now func() time.Time // nil: time.Now

	mu sync.Mutex
	of map[string]*measured
}

// amount is a number of files and bytes.
type amount struct {
	files int
	bytes int64
}

func (a amount) plus(b amount) amount  { return amount{a.files + b.files, a.bytes + b.bytes} }
func (a amount) minus(b amount) amount { return amount{a.files - b.files, a.bytes - b.bytes} }

// measured is the last measurement of a workspace.
type measured struct {
	at    time.Time // zero: it is not measured
	there amount    // when it was measured, with what was admitted since
	ever  amount    // all that was admitted
}

// meter is a file system that can count its files and bytes. It stops counting above given limits.
type meter interface {
	Used(ctx context.Context, files int, bytes int64) (int, int64, error)
}

// admit reserves room for what a request writes. Codes: invalid (the file is too large), exhausted.
func (r *Room) admit(ctx context.Context, fsys workspacefs.FS, q schemas.FileRequest, n int) error {
	m, measurable := fsys.(meter)
	if r == nil || !measurable {
		return nil
	}
	name, more := q.Path, amount{bytes: int64(n)}
	switch q.Op {
	case schemas.FileAppend:
	case schemas.FileWrite, schemas.FileMkdir:
		more.files = 1
	case schemas.FileCommit:
		name, more.files = q.To, 1
	case schemas.FileRemove:
		r.forget(q)
		return nil
	default:
		return nil
	}
	if max(q.Size, q.Offset+int64(n)) > r.FileSize {
		return schemas.Invalidf(schemas.FieldFileSize, "the file has more than %d bytes, the most of one file on S3 (--s3-file-size)", r.FileSize)
	}
	ok, asked, err := r.fits(ctx, m, q, more, measuredFor)
	if ok || err != nil {
		return err
	}
	if q.Op != schemas.FileAppend { // what is replaced makes room
		switch there, err := fsys.Stat(ctx, name); {
		case err == nil && q.Op == schemas.FileMkdir:
			return nil
		case err == nil:
			more = more.minus(amount{1, there.Size()})
		case workspacefs.CodeOf(err) != workspacefs.ErrNotFound:
			return err
		}
	}
	age := measuredFor
	if !asked { // clients do not repeat what is refused, so an old measure refuses nothing
		age = 0
	}
	if ok, _, err := r.fits(ctx, m, q, more, age); ok || err != nil {
		return err
	}
	return schemas.OpErrorf(schemas.Exhausted, "path", "the workspace is full: on S3 it may have %d files (--s3-files) and %d MiB (--s3-bytes): "+
		"remove some files, and then try again", r.Files, r.Bytes>>20)
}

// fits reserves room if there is some by a measurement younger than age. asked says that a measurement was made for this request.
func (r *Room) fits(ctx context.Context, m meter, q schemas.FileRequest, more amount, age time.Duration) (ok, asked bool, err error) {
	key := schemas.Namespace(q.Account, q.Workspace)
	ok, known, ever := r.take(key, more, age)
	if known {
		return ok, false, nil
	}
	began := r.time()
	files, bytes, err := m.Used(ctx, r.Files, r.Bytes)
	if err != nil {
		return false, true, err
	}
	r.note(key, began, amount{files, bytes}, ever)
	ok, _, _ = r.take(key, more, measuredFor)
	return ok, true, nil
}

// take reserves room by the last measurement, unless it is older than age. ever is everything admitted until then.
func (r *Room) take(key string, more amount, age time.Duration) (ok, known bool, ever amount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.of[key]
	if m == nil {
		if len(r.of) >= mostMeasured {
			clear(r.of) // they are measured again
		}
		if r.of == nil {
			r.of = map[string]*measured{}
		}
		m = &measured{}
		r.of[key] = m
	}
	if m.at.IsZero() || r.time().Sub(m.at) >= age {
		return false, false, m.ever
	}
	then := m.there.plus(more)
	if more.files > 0 && then.files > r.Files || more.bytes > 0 && then.bytes > r.Bytes {
		return false, true, m.ever
	}
	m.there, m.ever = then, m.ever.plus(more)
	return true, true, m.ever
}

// note records a measurement that began when ever had been admitted. What was admitted later may be part of it or not, and is added.
func (r *Room) note(key string, began time.Time, there, ever amount) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.of[key]; m != nil {
		m.at, m.there = began, there.plus(m.ever.minus(ever))
	}
}

// forget makes the next request measure the workspace again.
func (r *Room) forget(q schemas.FileRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.of[schemas.Namespace(q.Account, q.Workspace)]; m != nil {
		m.at = time.Time{}
	}
}

func (r *Room) time() time.Time {
	if r.now != nil {
		return r.now()
	}
	return time.Now()
}
