package runfs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

// reply is the parsed answer of the script. After the line "sandjet MARK WORD" the answer has a line "= DESCRIPTION" or "! WORD" for each
// file read, "# DIGEST" for each digest requested, "more" if something is left, and a line "-" ("z" for packed content) before content in
// base64. "sandjet MARK ." ends it.
type reply struct {
	word    string
	found   []outcome
	sums    []string
	content []byte
	more    bool
}

var (
	errNoReply = errors.New("there is no answer, or a part of one")
	errGarbled = errors.New("the answer is garbled")
)

// parse parses an answer. Other programs' output may precede and follow it.
func parse(mark string, out []byte) (r reply, err error) {
	_, rest, ok := bytes.Cut(append([]byte("\n"), out...), []byte("\nsandjet "+mark+" "))
	if !ok {
		return r, errNoReply
	}
	word, rest, _ := bytes.Cut(rest, []byte("\n"))
	body, _, ok := bytes.Cut(append([]byte("\n"), rest...), []byte("\nsandjet "+mark+" .\n"))
	if !ok {
		return r, errNoReply
	}
	r.word = string(word)
	for lines := bytes.TrimPrefix(body, []byte("\n")); len(lines) > 0; {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\n"))
		switch text := string(line); {
		case strings.HasPrefix(text, "= "):
			i, err := description(text[2:])
			if err != nil {
				return r, err
			}
			r.found = append(r.found, outcome{info: i})
		case strings.HasPrefix(text, "! "):
			c, known := code(text[2:])
			if !known {
				return r, errGarbled
			}
			r.found = append(r.found, outcome{err: c})
		case strings.HasPrefix(text, "# "):
			sum, err := hex.DecodeString(text[2:])
			if err != nil || len(sum) != sha256.Size {
				return r, errGarbled
			}
			r.sums = append(r.sums, hex.EncodeToString(sum))
		case text == "more":
			r.more = true
		case text == "-", text == "z":
			r.content, err = content(lines, text == "z")
			return r, err
		default:
			return r, errGarbled
		}
	}
	return r, nil
}

// content decodes base64. Packed content is bounded in size and may be cut off at the end.
func content(lines []byte, packed bool) ([]byte, error) {
	plain := make([]byte, base64.StdEncoding.DecodedLen(len(lines)))
	n, err := base64.StdEncoding.Decode(plain, lines)
	if err != nil {
		return nil, errGarbled
	}
	plain = plain[:n]
	if !packed {
		return plain, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(plain))
	if err != nil {
		return nil, errGarbled
	}
	b, err := io.ReadAll(io.LimitReader(z, mostListed))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errGarbled
	}
	return b, nil
}

// info describes a file.
type info struct {
	name string
	mode fs.FileMode
	workspacefs.Info
}

func (i info) named(name string) info {
	i.name = path.Base(name)
	return i
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.Info.Size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.Info.ModTime }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return i.Info }

// Describe implements [workspacefs.Describer].
func (i info) Describe(string) (workspacefs.Info, error) { return i.Info, nil }

// description parses the output of stat: mode in hex, size, inode, links, and the times of the last change of the content and of anything.
func description(text string) (i info, err error) {
	f := strings.Split(text, " ")
	const before = 4
	if len(f) <= before {
		return i, errGarbled
	}
	mode, err1 := strconv.ParseUint(f[0], 16, 32)
	size, err2 := strconv.ParseInt(f[1], 10, 64)
	inode, err3 := strconv.ParseUint(f[2], 10, 64)
	links, err4 := strconv.ParseUint(f[3], 10, 64)
	modified, rest, err5 := moment(f[before:])
	changed, rest, err6 := moment(rest)
	if errors.Join(err1, err2, err3, err4, err5, err6) != nil || size < 0 || len(rest) > 0 {
		return i, errGarbled
	}
	i.mode = modeOf(uint32(mode))
	i.Info = workspacefs.Info{Size: size, ModTime: modified, Changed: changed, Inode: inode, Links: links}
	return i, nil
}

// moment parses a time: Unix seconds, followed by the time as text, of which only the fraction is used and whose zone may be missing.
func moment(f []string) (t time.Time, rest []string, err error) {
	const fields = 3
	if len(f) < fields {
		return t, nil, errGarbled
	}
	sec, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return t, nil, errGarbled
	}
	var ns int64
	if _, fraction, ok := strings.Cut(f[2], "."); ok && len(fraction) == len("000000000") {
		n, err := strconv.ParseUint(fraction, 10, 32)
		if err != nil {
			return t, nil, errGarbled
		}
		ns = int64(n)
	}
	if rest = f[fields:]; len(rest) > 0 && rest[0] != "" && (rest[0][0] == '+' || rest[0][0] == '-') {
		rest = rest[1:]
	}
	return time.Unix(sec, ns), rest, nil
}

// modeOf converts a mode of the system to Go's.
func modeOf(m uint32) fs.FileMode {
	const ( // of Linux, on every architecture
		kind, fifo, char, dir, block, regular, link, socket = 0xf000, 0x1000, 0x2000, 0x4000, 0x6000, 0x8000, 0xa000, 0xc000
		permissions                                         = 0o777
	)
	mode := fs.FileMode(m & permissions)
	switch m & kind {
	case regular:
	case dir:
		mode |= fs.ModeDir
	case link:
		mode |= fs.ModeSymlink
	case fifo:
		mode |= fs.ModeNamedPipe
	case socket:
		mode |= fs.ModeSocket
	case char:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case block:
		mode |= fs.ModeDevice
	default:
		mode |= fs.ModeIrregular
	}
	return mode
}

// entry is a file in a listing.
type entry struct {
	path string
	info info
}

func (e entry) entry() workspacefs.Entry {
	return workspacefs.Entry{Name: path.Base(e.path), Type: e.info.Mode().Type(), Source: e.info}
}

// entries parses a listing: "//DESCRIPTION,./PATH" and a line break for each file, and "//." at the end. No path contains two slashes in a
// row, so a line break within a path is not ambiguous. Whole reports whether the end was found; entries that are cut off, or exceed
// mostEntries, are left out.
func entries(list []byte) (all []entry, whole bool, err error) {
	if len(list) == 0 {
		return nil, false, nil
	}
	rest, ok := strings.CutPrefix(string(list), "//")
	if !ok {
		return nil, false, errGarbled
	}
	for {
		record, next, more := strings.Cut(rest, "\n//")
		if !more {
			return all, record == ".\n", nil
		}
		about, p, ok := strings.Cut(record, ",./")
		if !ok || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.HasPrefix(p, "/") || path.Clean(p) != p ||
			strings.ContainsRune(p, 0) {
			return nil, false, errGarbled
		}
		i, err := description(about)
		if err != nil {
			return nil, false, fmt.Errorf("%w: %.100q", err, record)
		}
		if len(all) == mostEntries {
			return all, false, nil
		}
		all = append(all, entry{p, i.named(p)})
		rest = next
	}
}
