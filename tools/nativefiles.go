package tools

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// wholeSize is the size of the largest file that is read to compute its etag, in bytes.
const wholeSize = 64 << 20

func (t read) run(ctx context.Context, root workspacefs.FS) (a answer, err error) {
	f, err := root.Open(ctx, t.name)
	if err != nil {
		return a, fmt.Errorf("read: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return a, fmt.Errorf("read: %w", err)
	}
	peek := make([]byte, t.peek())
	n, err := f.ReadAt(peek, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return a, fmt.Errorf("read: %w", err)
	}
	a = answer{word: wordOK, texts: []string{""}}
	newlines, page := int64(-1), []byte(nil)
	switch {
	case info.Size() > countedSize && hasNUL(peek[:n]): // no page of it is shown
	case info.Size() <= countedSize:
		content, err := io.ReadAll(io.LimitReader(f, countedSize))
		if err != nil {
			return a, fmt.Errorf("read: %w", err)
		}
		newlines = int64(bytes.Count(content, []byte{'\n'}))
		a.texts[0] = etag(content)
		page = t.cut(content)
	default:
		seen, err := t.scan(ctx, f, &page)
		if err != nil {
			return a, err
		}
		if len(page) == 0 {
			newlines = seen
		}
	}
	var last [1]byte
	if info.Size() > 0 {
		_, _ = f.ReadAt(last[:], info.Size()-1) // if it has become shorter, there is no line end
	}
	a.parts = [][]byte{peek[:n], page}
	a.numbers = []int64{info.Size(), newlines, int64(number(last[0] == '\n'))}
	return a, nil
}

// cut returns the page of the whole content.
func (t read) cut(content []byte) []byte {
	for range t.skip {
		n := bytes.IndexByte(content, '\n')
		if n < 0 {
			return nil
		}
		content = content[n+1:]
	}
	end := 0
	for lines := int64(0); end < len(content) && lines <= t.limit && end <= maxPage; lines++ {
		n := bytes.IndexByte(content[end:], '\n')
		if n < 0 {
			end = len(content)
			break
		}
		end += n + 1
	}
	return content[:min(end, maxPage+1)]
}

// scan reads a large file up to the end of the page, and returns the number of line ends so far.
func (t read) scan(ctx context.Context, f io.Reader, page *[]byte) (seen int64, err error) {
	const buffer = 64 << 10
	in := bufio.NewReaderSize(f, buffer)
	for {
		if err := checkpoint(ctx); err != nil {
			return seen, err
		}
		piece, err := in.ReadSlice('\n')
		if seen >= t.skip {
			*page = append(*page, piece...)
		}
		if err == nil {
			seen++
		}
		switch {
		case seen >= t.skip && (len(*page) > maxPage || seen-t.skip > t.limit):
			*page = (*page)[:min(len(*page), maxPage+1)]
			return seen, nil
		case errors.Is(err, io.EOF):
			return seen, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return seen, fmt.Errorf("read: %w", err)
		}
	}
}

func (t write) run(ctx context.Context, root workspacefs.FS) (answer, error) {
	mode := map[schemas.WriteMode]workspacefs.Mode{
		schemas.WriteOverwrite: workspacefs.Replace, schemas.WriteCreate: workspacefs.Create, schemas.WriteAppend: workspacefs.Append,
	}[t.in.Mode]
	_, err := root.Stat(ctx, t.name)
	created := workspacefs.CodeOf(err) == workspacefs.ErrNotFound
	var was fs.FileInfo // the file must still be this one when it is written
	if t.in.IfMatch != "" {
		if created {
			return answer{word: wordChanged}, nil
		}
		present, info, err := hashOf(ctx, root, t.name)
		if err != nil {
			return answer{}, fmt.Errorf("write: %w", err)
		}
		if present != t.in.IfMatch {
			return answer{word: wordChanged}, nil
		}
		was = info
	}
	if err := root.Write(ctx, t.name, []byte(t.in.Content), mode, was); err != nil {
		return answer{}, fmt.Errorf("write: %w", err)
	}
	return answer{word: wordOK, numbers: []int64{int64(number(created))}}, nil
}

// hashOf returns the etag of a file of at most [wholeSize] bytes, and its description.
func hashOf(ctx context.Context, root workspacefs.FS, name string) (string, fs.FileInfo, error) {
	f, err := root.Open(ctx, name)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	hash, buf := sha256.New(), make([]byte, window)
	for at := int64(0); ; {
		if err := checkpoint(ctx); err != nil {
			return "", nil, err
		}
		n, err := f.Read(buf)
		_, _ = hash.Write(buf[:n]) // it cannot fail
		if at += int64(n); max(at, info.Size()) > wholeSize {
			return "", nil, workspacefs.ErrTooLarge
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(hash.Sum(nil)), info, nil
		}
		if err != nil {
			return "", nil, err
		}
	}
}

func (t edit) run(ctx context.Context, root workspacefs.FS) (answer, error) {
	content, info, err := workspacefs.ReadFile(ctx, root, t.name, schemas.MaxEdit)
	if err != nil {
		return answer{}, fmt.Errorf("edit: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return answer{word: wordHardLink}, nil
	}
	if bytes.IndexByte(content, 0) >= 0 {
		return answer{word: wordNotText}, nil
	}
	for _, p := range t.pairs {
		n := bytes.Count(content, []byte(p.old))
		switch {
		case n == 0:
			continue
		case n > 1 && !t.all:
			return answer{word: wordMany, numbers: []int64{int64(n)}}, nil
		}
		if size := grown(int64(len(content)), int64(n), int64(len(p.old)), int64(len(p.new))); size > schemas.MaxEdited {
			return answer{word: wordGrown, numbers: []int64{size}}, nil
		}
		edited := bytes.ReplaceAll(content, []byte(p.old), []byte(p.new))
		if err := root.Write(ctx, t.name, edited, workspacefs.Replace, info); err != nil {
			return answer{}, fmt.Errorf("edit: %w", err)
		}
		return answer{word: wordOK, numbers: []int64{int64(n), int64(len(edited))}, texts: []string{etag(edited)}}, nil
	}
	return answer{word: wordNoMatch}, nil
}
