package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Store takes what is read. Its functions may be called again after an error.
type Store struct {
	// Kept is how many artifacts the conversation has, and their bytes.
	Kept func(context.Context) (n int, size int64, err error)
	// Room reports whether so many bytes more may be kept. Codes: exhausted (not for this account), unavailable (for nobody).
	Room func(ctx context.Context, size int64) error
	// Chunk stores a chunk of at most [streams.ArtifactChunk] bytes and returns its name.
	Chunk func(ctx context.Context, data []byte) (string, error)
}

const (
	// knownBudget is how many bytes are read before a call to know contents that are not known yet.
	knownBudget = 16 << 20
	// knownMost is how many digests a process remembers.
	knownMost = 20_000
)

// Sums remembers digests of files by what they were, so that a file is read once however many calls look at it. It may be used from
// many goroutines.
type Sums struct {
	mu sync.Mutex
	of map[string]known
}

type known struct {
	info workspacefs.Info
	sum  string
}

func (s *Sums) get(key string, info workspacefs.Info) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.of[key]; ok && k.info.Same(info) {
		return k.sum
	}
	return ""
}

func (s *Sums) put(key string, info workspacefs.Info, sum string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil || len(s.of) >= knownMost {
		s.of = map[string]known{}
	}
	s.of[key] = known{info, sum}
}

// Collector reads the artifacts of one call.
type Collector struct {
	FS     workspacefs.FS
	Places Places
	Call   schemas.Call
	Store  Store
	Sums   *Sums
	Now    func() time.Time
}

func (c *Collector) key(file string) string {
	return string(c.Call.Account) + "/" + string(c.Call.Workspace) + "/" + file
}

// Before looks at the places before the call, and at contents as far as they are small or known. The error is ctx's, or a failure of
// the file system.
func (c *Collector) Before(ctx context.Context) (Look, error) {
	l, err := c.Places.Look(ctx, c.FS)
	if err != nil {
		return Look{}, err
	}
	left := int64(knownBudget)
	for file, s := range l.Found {
		if refusal(file, s) != "" {
			continue
		}
		if !s.Fresh {
			s.Sum = c.Sums.get(c.key(file), s.Info)
		}
		if s.Sum == "" && s.Info.Size <= left {
			left -= s.Info.Size
			if r, err := c.read(ctx, Candidate{Path: file, Info: s.Info}, nil); err == nil {
				s.Sum = r.sum
				c.Sums.put(c.key(file), s.Info, r.sum)
			}
		}
		l.Found[file] = s
		if err := ctx.Err(); err != nil {
			return Look{}, err
		}
	}
	return l, nil
}

// Collect looks at the places after the call, and stores the bytes of what has changed. What could not be had is skipped with its
// reason. The error is ctx's, or a failure of the file system.
func (c *Collector) Collect(ctx context.Context, before Look) (list []streams.KeptArtifact, skipped []schemas.SkippedArtifact, err error) {
	after, err := c.Places.Look(ctx, c.FS)
	if err != nil {
		return nil, nil, err
	}
	candidates, skipped := Plan(before, after)
	var total int64
	var n, kept int
	var keptSize int64
	for _, f := range candidates {
		skip := func(reason schemas.SkipReason) {
			skipped = append(skipped, schemas.SkippedArtifact{Path: f.Path, Reason: reason, Size: f.Info.Size})
		}
		if f.Was != "" { // read it once before any of it is stored: it may be as it was
			r, err := c.read(ctx, f, nil)
			if err == nil && r.sum == f.Was {
				c.Sums.put(c.key(f.Path), r.info, r.sum)
				continue
			}
		}
		if n == 0 {
			if kept, keptSize, err = again2(ctx, c.Store.Kept); err != nil {
				skip(schemas.SkipNotStored)
				if ctx.Err() != nil {
					return nil, nil, ctx.Err()
				}
				continue
			}
		}
		switch {
		case n >= schemas.MaxArtifacts:
			skip(schemas.SkipTooMany)
			continue
		case total+f.Info.Size > schemas.MaxArtifactsSize:
			skip(schemas.SkipTooLargeTogether)
			continue
		case kept+n >= schemas.MaxArtifactsKept || keptSize+total+f.Info.Size > schemas.MaxArtifactsKeptSize:
			skip(schemas.SkipConversationFull)
			continue
		}
		k, reason := c.keep(ctx, f)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if reason != "" {
			skip(reason)
			continue
		}
		n++
		total += k.Artifact.Size
		list = append(list, k)
	}
	return list, skipped, nil
}

// keep stores the bytes of one file, or says why not.
func (c *Collector) keep(ctx context.Context, f Candidate) (k streams.KeptArtifact, reason schemas.SkipReason) {
	switch err := c.Store.Room(ctx, f.Info.Size); {
	case errors.Is(err, schemas.ErrExhausted):
		return k, schemas.SkipAccountFull
	case err != nil:
		return k, schemas.SkipLogFull
	}
	const tries = 2
	for try := 1; ; try++ {
		r, err := c.read(ctx, f, func(chunk []byte) error {
			name, err := again1(ctx, func(ctx context.Context) (string, error) { return c.Store.Chunk(ctx, chunk) })
			if err != nil {
				return fmt.Errorf("%w: %w", errNotStored, err)
			}
			k.Chunks = append(k.Chunks, name)
			return nil
		})
		if err == nil {
			c.Sums.put(c.key(f.Path), r.info, r.sum)
			k.Artifact = schemas.NewArtifact(c.Call, f.Path, r.info.Size, r.sum, r.begin, c.Now())
			return k, ""
		}
		k.Chunks = nil
		switch {
		case errors.Is(err, errChanged) && try < tries && ctx.Err() == nil:
		case errors.Is(err, errChanged):
			return k, schemas.SkipChanged
		case errors.Is(err, errNotStored):
			return k, schemas.SkipNotStored
		case errors.Is(err, errTooLarge):
			return k, schemas.SkipTooLarge
		default:
			return k, schemas.SkipUnreadable
		}
	}
}

var (
	errChanged   = errors.New("the file was changed while it was read")
	errNotStored = errors.New("the bytes were not stored")
	errTooLarge  = errors.New("the file has grown above the limit")
)

// whole is one version of a file that was read.
type whole struct {
	info  workspacefs.Info
	sum   string
	begin []byte // of the content
}

// read reads one version of a file: of the inode that the look has found, and of one size and time from the first byte to the last.
// Chunk is called with each chunk; nil: only the digest is wanted.
func (c *Collector) read(ctx context.Context, f Candidate, chunk func([]byte) error) (r whole, err error) {
	file, err := c.FS.Open(ctx, f.Path)
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
		return r, errTooLarge
	}
	h, buf := sha256.New(), make([]byte, min(r.info.Size, streams.ArtifactChunk))
	for left := r.info.Size; left > 0; left -= int64(len(buf)) {
		buf = buf[:min(left, int64(len(buf)))]
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if _, err := io.ReadFull(file, buf); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return r, errChanged
			}
			return r, fmt.Errorf("read: %w", err)
		}
		if r.begin == nil {
			const peek = 8 << 10
			r.begin = append([]byte{}, buf[:min(len(buf), peek)]...)
		}
		h.Write(buf) // never fails
		if chunk != nil {
			if err := chunk(buf); err != nil {
				return r, err
			}
		}
	}
	if stat, err = file.Stat(); err != nil {
		return r, fmt.Errorf("stat: %w", err)
	}
	if !workspacefs.InfoOf(stat).Same(r.info) {
		return r, errChanged
	}
	r.sum = hex.EncodeToString(h.Sum(nil))
	return r, nil
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
