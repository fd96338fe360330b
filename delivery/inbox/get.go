package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"path"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// getting fetches the files of one message.
type getting struct {
	s       *Sender
	folder  Folder
	fetcher channel.Fetcher
	to      channel.Destination
	setting string
	left    int64 // bytes that the message's files may still have
}

// never is the permanent error of a file that will not be stored.
type never struct{ why string }

func (e never) Error() string { return e.why }

func refuse(format string, args ...any) error { return never{fmt.Sprintf(format, args...)} }

// get fetches a file and stores it at a path, unless it is stored there already. Its error is a [never], a [*channel.Error] of the
// service, or an error of the folder.
func (g *getting) get(ctx context.Context, f *schemas.ChatFile, to string) error {
	there, err := g.folder.Stat(ctx, to)
	if err == nil { // stored by an earlier try
		g.left -= there.Size
		f.Path, f.Size = to, there.Size
		return nil
	}
	if !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	switch {
	case f.Ref == "":
		return refuse("its service does not say where it is")
	case kindOf(f.Type, f.Name) != "" && !wanted(g.setting, kindOf(f.Type, f.Name)), strings.TrimSpace(g.setting) == takesNone:
		return refuse("the channel takes no files of this kind")
	}
	if err := g.fits(f.Size); err != nil {
		return err
	}
	c, err := g.fetcher.Fetch(ctx, g.to, channel.InboundFile{Name: f.Name, Type: f.Type, Size: f.Size, Ref: f.Ref})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // it was only read
	if f.Type == "" {
		f.Type = schemas.HeadText(kindOf(c.Type, ""), schemas.MaxChatFileType)
	}
	if !wanted(g.setting, kindOf(f.Type, f.Name)) {
		return refuse("the channel takes no files of this kind")
	}
	if err := g.fits(c.Size); err != nil {
		return err
	}
	n, err := g.store(ctx, c, to)
	if err != nil {
		return err
	}
	g.left -= n
	f.Path, f.Size = to, n
	return g.s.at(atStored)
}

// fits returns an error if the file, or the message with it, is too large. A size below 1 is unknown.
func (g *getting) fits(size int64) error {
	switch {
	case size > schemas.MaxChatFileSize:
		return refuse("it is larger than %d MB", schemas.MaxChatFileSize>>20)
	case size > g.left:
		return refuse("the files of the message together are larger than %d MB", schemas.MaxChatFilesSize>>20)
	}
	return nil
}

// store stores the data of from as a file and returns its size. It holds one piece in memory.
func (g *getting) store(ctx context.Context, from io.Reader, to string) (int64, error) {
	staged := g.folder.Stage(to)
	piece := make([]byte, schemas.MaxFileChunk)
	var at int64
	for {
		n, err := io.ReadFull(from, piece)
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) // a truncated body is a channel.Error instead
		if err != nil && !ended {
			staged.Forget(ctx)
			return 0, err
		}
		if err := g.fits(at + int64(n)); err != nil {
			staged.Forget(ctx)
			return 0, err
		}
		if ended {
			err = staged.End(ctx, at, piece[:n])
		} else {
			err = staged.Add(ctx, at, piece)
		}
		at += int64(n)
		switch {
		case ended && errors.Is(err, schemas.ErrConflict): // another deliverer has stored it meanwhile
			there, err := g.folder.Stat(ctx, to)
			return there.Size, err
		case err != nil:
			staged.Forget(ctx)
			return 0, err
		case ended:
			return at, nil
		}
		if err := g.s.at(atPiece); err != nil {
			return 0, err
		}
	}
}

// outcome is the consequence of a file's error for its message.
type outcome int

const (
	stored outcome = iota
	given          // it will not be stored, and the message is passed on without it
	later          // the message waits for a retry
)

// verdict returns the consequence of a file's error, and how long to wait before a retry. It has no side effects.
func verdict(err error, last bool) (outcome, time.Duration) {
	if err == nil {
		return stored, 0
	}
	if _, ok := errors.AsType[never](err); ok || last {
		return given, 0
	}
	if e, ok := errors.AsType[*channel.Error](err); ok {
		if e.Outcome == channel.Refused || e.After > longestRest {
			return given, 0
		}
		return later, e.After
	}
	switch schemas.CodeOf(err) { //nolint:exhaustive // all other errors are retried
	case schemas.Exhausted, schemas.Denied, schemas.Invalid, schemas.Unsupported:
		return given, 0
	}
	return later, 0
}

// reasonOf describes why a file is not stored.
func reasonOf(err error) string {
	if e, ok := errors.AsType[never](err); ok {
		return e.why
	}
	if e, ok := errors.AsType[*channel.Error](err); ok {
		return e.Reason
	}
	p := schemas.Public(err)
	if p.Code == schemas.Internal {
		return "it could not be stored"
	}
	return p.Message
}

// takesNone is the setting of a channel that accepts no files.
const takesNone = "none"

// kindOf returns the content type of a file, as its service states or by its name's extension; empty if unknown. It has no side effects.
func kindOf(said, name string) string {
	kind, _, _ := strings.Cut(said, ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); kind != "" {
		return kind
	}
	kind, _, _ = strings.Cut(mime.TypeByExtension(strings.ToLower(path.Ext(name))), ";")
	return kind
}

// wanted reports whether a channel accepts files of a content type: all without a setting, else those of its list, such as image/* and
// application/pdf. It has no side effects.
func wanted(setting, kind string) bool {
	if strings.TrimSpace(setting) == "" {
		return true
	}
	for want := range strings.SplitSeq(strings.ToLower(setting), ",") {
		want = strings.TrimSpace(want)
		family, all := strings.CutSuffix(want, "/*")
		if want == "*" || want == kind && kind != "" || all && strings.HasPrefix(kind, family+"/") {
			return true
		}
	}
	return false
}
