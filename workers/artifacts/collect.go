package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Store writes artifacts. Its functions may be repeated after an error.
type Store struct {
	// Kept is how many artifacts the conversation has, and their bytes.
	Kept func(context.Context) (n int, size int64, err error)
	// Room reports whether so many bytes more may be kept. Codes: exhausted (not for this account), unavailable (for no account).
	Room func(ctx context.Context, size int64) error
	// Chunk stores a chunk of at most [streams.ArtifactChunk] bytes and returns its name.
	Chunk func(ctx context.Context, data []byte) (string, error)
}

const (
	// knownBudget is how many bytes are read before a call to know contents that are not known yet.
	knownBudget = 16 << 20
	// SumsByRun is how many digests of files one run returns, if files are reached by runs.
	SumsByRun = 256
	// SumNamesByRun is how many bytes the paths of these files have together.
	SumNamesByRun = 64 << 10
)

// Collector finds and stores the artifacts of one call.
type Collector struct {
	FS     workspacefs.FS
	Places Places
	Call   schemas.Call
	Store  Store
	Memory *CallMemory // of the call
	Now    func() time.Time
}

func (c *Collector) key(file string) string { return string(c.Call.Workspace) + "/" + file }

// Before lists the places for artifacts before the call, and reads contents that are small or whose digests are known. The error is that
// of ctx, or of the file system.
func (c *Collector) Before(ctx context.Context) (Look, error) {
	l, err := c.Places.Look(ctx, c.FS, c.Memory)
	if err != nil {
		return Look{}, err
	}
	left := int64(knownBudget)
	if w, ok := c.FS.(workspacefs.Summer); ok {
		return l, c.known(ctx, w, l.Found, left)
	}
	for file, s := range l.Found {
		if refusal(file, s) != "" {
			continue
		}
		if !s.Fresh {
			s.Sum = c.Memory.get(c.key(file), s.Info)
		}
		if s.Sum == "" && s.Info.Size <= left {
			left -= s.Info.Size
			if r, err := c.read(ctx, Candidate{Path: file, Info: s.Info}, nil); err == nil {
				s.Sum = r.sum
				c.Memory.put(c.key(file), s.Info, r.sum)
			}
		}
		l.Found[file] = s
		if err := ctx.Err(); err != nil {
			return Look{}, err
		}
	}
	return l, nil
}

// known adds digests to the found entries, by one request. Files that it does not answer stay without one; the error is that of ctx.
func (c *Collector) known(ctx context.Context, w workspacefs.Summer, found map[string]Seen, left int64) error {
	ask := asking{left: left}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		s := found[file]
		if refusal(file, s) != "" {
			continue
		}
		if !s.Fresh {
			s.Sum = c.Memory.get(c.key(file), s.Info)
			found[file] = s
		}
		if s.Sum == "" {
			ask.add(file, s.Info.Size)
		}
	}
	for file, sum := range c.sums(ctx, w, ask.names) {
		if s := found[file]; s.Info.Same(sum.Info) {
			s.Sum = sum.SHA256
			found[file] = s
			c.Memory.put(c.key(file), s.Info, s.Sum)
		}
	}
	return ctx.Err()
}

// sums requests the digests of files, and returns those that it gets.
func (c *Collector) sums(ctx context.Context, w workspacefs.Summer, names []string) map[string]workspacefs.Sum {
	known := map[string]workspacefs.Sum{}
	if len(names) == 0 {
		return known
	}
	sums, err := w.Sums(ctx, names)
	if err != nil {
		return known // each file counts by its times then
	}
	for n, s := range sums {
		if s.SHA256 != "" {
			known[names[n]] = s
		}
	}
	return known
}

// sumsOf requests the digests of files that may be unchanged, where that is cheaper than reading them.
func (c *Collector) sumsOf(ctx context.Context, candidates []Candidate) map[string]workspacefs.Sum {
	w, ok := c.FS.(workspacefs.Summer)
	if !ok {
		return nil
	}
	ask := asking{left: knownBudget}
	for _, f := range candidates {
		if f.Was != "" {
			ask.add(f.Path, f.Info.Size)
		}
	}
	return c.sums(ctx, w, ask.names)
}

// asking is a request for digests within its limits.
type asking struct {
	names []string
	bytes int   // of them
	left  int64 // bytes of files
}

func (a *asking) add(name string, size int64) {
	if size > a.left || len(a.names) == SumsByRun || a.bytes+len(name) > SumNamesByRun {
		return
	}
	a.names, a.bytes, a.left = append(a.names, name), a.bytes+len(name), a.left-size
}

// Collect lists the places after the call and stores the files that have changed. A file that could not be stored is skipped with its
// reason. The error is that of ctx, or of the file system.
func (c *Collector) Collect(ctx context.Context, before Look) (list []streams.KeptArtifact, skipped []schemas.SkippedArtifact, err error) {
	after, err := c.Places.Look(ctx, c.FS, c.Memory)
	if err != nil {
		return nil, nil, err
	}
	candidates, skipped := Plan(before, after)
	var l spent
	var counted bool // what the conversation has
	sums := c.sumsOf(ctx, candidates)
	for _, f := range candidates {
		skip := func(reason schemas.SkipReason) {
			skipped = append(skipped, schemas.SkippedArtifact{Path: f.Path, Reason: reason, Size: f.Info.Size})
		}
		if sum, ok := sums[f.Path]; ok {
			if sum.SHA256 == f.Was {
				c.Memory.put(c.key(f.Path), sum.Info, sum.SHA256)
				continue
			}
		} else if f.Was != "" { // read it once before any of it is stored: it may be as it was
			r, err := c.read(ctx, f, nil)
			if err == nil && r.sum == f.Was {
				c.Memory.put(c.key(f.Path), r.info, r.sum)
				continue
			}
		}
		if !counted {
			if l.kept, l.keptSize, err = again2(ctx, c.Store.Kept); err != nil {
				skip(schemas.SkipNotStored)
				if ctx.Err() != nil {
					return nil, nil, ctx.Err()
				}
				continue
			}
			counted = true
		}
		k, reason := c.keep(ctx, f, &l)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if reason != "" {
			skip(reason)
			continue
		}
		l.n++
		list = append(list, k)
	}
	return list, skipped, nil
}

// spent is what a call, and its conversation before it, has stored. Bytes count from just before they are stored, also those of a file of
// which no version was read to its end, since the log has them.
type spent struct {
	n      int // artifacts
	stored int64

	kept     int
	keptSize int64
}

// admit returns why a file of a size may not be stored; empty if it may.
func (l spent) admit(size int64) schemas.SkipReason {
	switch {
	case l.n >= schemas.MaxArtifacts:
		return schemas.SkipTooMany
	case size > schemas.MaxArtifactSize:
		return schemas.SkipTooLarge
	case l.stored+size > schemas.MaxArtifactsSize:
		return schemas.SkipTooLargeTogether
	case l.kept+l.n >= schemas.MaxArtifactsKept || l.keptSize+l.stored+size > schemas.MaxArtifactsKeptSize:
		return schemas.SkipConversationFull
	}
	return ""
}

// refused is a skip reason as an error.
type refused schemas.SkipReason

func (r refused) Error() string { return "the file is no artifact: " + string(r) }

// admit decides whether a file may be stored, by its present size, which may differ from the listed one.
func (c *Collector) admit(ctx context.Context, l *spent, size int64) error {
	if reason := l.admit(size); reason != "" {
		return refused(reason)
	}
	switch err := c.Store.Room(ctx, size); {
	case errors.Is(err, schemas.ErrExhausted):
		return refused(schemas.SkipAccountFull)
	case err != nil:
		return refused(schemas.SkipLogFull)
	}
	return nil
}

// keep stores one file, or returns why not.
func (c *Collector) keep(ctx context.Context, f Candidate, l *spent) (k streams.KeptArtifact, reason schemas.SkipReason) {
	const tries = 2
	for try := 1; ; try++ {
		r, err := c.read(ctx, f, &sink{
			admit: func(size int64) error { return c.admit(ctx, l, size) },
			chunk: func(chunk []byte) error {
				l.stored += int64(len(chunk)) // also if it fails: it may be there
				name, err := again1(ctx, func(ctx context.Context) (string, error) { return c.Store.Chunk(ctx, chunk) })
				if err != nil {
					return fmt.Errorf("%w: %w", errNotStored, err)
				}
				k.Chunks = append(k.Chunks, name)
				return nil
			},
		})
		if err == nil {
			c.Memory.put(c.key(f.Path), r.info, r.sum)
			k.Artifact = schemas.NewArtifact(c.Call, f.Path, r.info.Size, r.sum, r.begin, c.Now())
			return k, ""
		}
		k.Chunks = nil
		var why refused
		switch {
		case errors.As(err, &why) && try > 1 && schemas.SkipReason(why) == schemas.SkipTooLargeTogether:
			return k, schemas.SkipChanged // what was stored of its former version leaves no room for this one
		case errors.As(err, &why):
			return k, schemas.SkipReason(why)
		case errors.Is(err, errChanged) && try < tries && ctx.Err() == nil:
		case errors.Is(err, errChanged):
			return k, schemas.SkipChanged
		case errors.Is(err, errNotStored):
			return k, schemas.SkipNotStored
		default:
			return k, schemas.SkipUnreadable
		}
	}
}

var (
	errChanged   = errors.New("the file was changed while it was read")
	errNotStored = errors.New("the bytes were not stored")
)

// whole is a version of a file that was read to its end.
type whole struct {
	info  workspacefs.Info
	sum   string
	begin []byte // of the content
}

// sink receives a file that is read: admit gets its size before the first byte, chunk each chunk.
type sink struct {
	admit func(size int64) error
	chunk func([]byte) error
}

// read reads one version of a file: of the inode that was listed, with the same size and time from the first byte to the last. It reads no
// more than the size at the beginning. Without a sink only the digest is computed.
func (c *Collector) read(ctx context.Context, f Candidate, to *sink) (r whole, err error) {
	file, err := c.FS.Open(ctx, f.Path)
	if errors.Is(err, workspacefs.ErrChanged) {
		return r, errChanged
	}
	if err != nil {
		return r, fmt.Errorf("open: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	stat, err := file.Stat()
	if err != nil {
		return r, fmt.Errorf("stat: %w", err)
	}
	r.info = workspacefs.InfoOf(stat)
	switch {
	case r.info.Inode != f.Info.Inode && r.info.Inode != 0 && f.Info.Inode != 0, r.info.Links > 1:
		return r, errChanged // by another in its place, which may be a link's
	case r.info.Size > schemas.MaxArtifactSize:
		return r, refused(schemas.SkipTooLarge)
	}
	if to != nil {
		if err := to.admit(r.info.Size); err != nil {
			return r, err
		}
	}
	h, buf := sha256.New(), make([]byte, min(r.info.Size, streams.ArtifactChunk))
	for left := r.info.Size; left > 0; left -= int64(len(buf)) {
		buf = buf[:min(left, int64(len(buf)))]
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if _, err := io.ReadFull(file, buf); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, workspacefs.ErrChanged) {
				return r, errChanged
			}
			return r, fmt.Errorf("read: %w", err)
		}
		if r.begin == nil {
			const peek = 8 << 10
			r.begin = append([]byte{}, buf[:min(len(buf), peek)]...)
		}
		h.Write(buf) // never fails
		if to == nil {
			continue
		}
		if err := unchanged(file, r.info); err != nil { // then nothing more of it is stored
			return r, err
		}
		if err := to.chunk(buf); err != nil {
			return r, err
		}
	}
	if err := unchanged(file, r.info); err != nil {
		return r, err
	}
	r.sum = hex.EncodeToString(h.Sum(nil))
	return r, nil
}

// unchanged returns an error if an open file is no longer the version was.
func unchanged(file workspacefs.File, was workspacefs.Info) error {
	stat, err := file.Stat()
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if !workspacefs.InfoOf(stat).Same(was) {
		return errChanged
	}
	return nil
}

var pause = wait.Backoff{First: 50 * time.Millisecond, Most: time.Second} //nolint:gochecknoglobals // a constant

// tries is how often the log is asked to take something: some ten seconds.
const tries = 12

func again1[T any](ctx context.Context, f func(context.Context) (T, error)) (v T, err error) {
	for try := 1; ; try++ {
		if v, err = f(ctx); err == nil || !schemas.CodeOf(err).Retryable() || try == tries || !pause.Sleep(ctx, try) {
			return v, err
		}
	}
}

func again2(ctx context.Context, f func(context.Context) (int, int64, error)) (n int, size int64, err error) {
	_, err = again1(ctx, func(ctx context.Context) (struct{}, error) {
		n, size, err = f(ctx)
		return struct{}{}, err
	})
	return n, size, err
}
