package files

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// member is a valid file or folder of an archive.
type member struct {
	name       string // clean, below the folder that is unpacked into
	folder     bool
	size       int64
	executable bool
	modified   time.Time
}

// archive reads the members of an untrusted tar. Each is validated before any of it is written.
type archive struct {
	tar     *tar.Reader
	from    *ending         // what tar reads
	folders map[string]bool // names so far: whether each is a folder
	members int             // and the folders that they need
	bytes   int64           // of the files so far

	take func(n int64) error // takes memory for names
}

// openArchive opens a tar, or one that is compressed with gzip, as its first bytes show. Code: invalid.
func openArchive(body io.Reader, take func(n int64) error) (*archive, error) {
	in := bufio.NewReader(body)
	from := io.Reader(in)
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b { // RFC 1952, 2.3.1
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, schemas.Wrap(schemas.Invalid, "", "the body begins like gzip and is none", err)
		}
		from = z
	}
	end := &ending{Reader: from}
	return &archive{tar: tar.NewReader(end), from: end, folders: map[string]bool{}, take: take}, nil
}

// ending is a reader that records whether the archive was read to the end of its input. A complete archive ends with two blocks of zeros.
// Package tar accepts archives without them, but if they are missing, the program that wrote the archive may have died.
type ending struct {
	io.Reader

	passed bool
}

// Read implements [io.Reader].
func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	e.passed = e.passed || n == 0 && errors.Is(err, io.EOF)
	return n, err
}

// next returns the next member; its content is then read from a.tar. At the end the error is io.EOF. Codes: invalid (the member or the
// archive is not accepted), exhausted (there is too much), and those of take.
func (a *archive) next() (m member, err error) {
	for {
		h, err := a.tar.Next()
		if errors.Is(err, io.EOF) && a.from.passed {
			err = io.ErrUnexpectedEOF
		}
		if errors.Is(err, io.EOF) {
			if _, err = io.Copy(io.Discard, io.LimitReader(a.from, mostPadding)); err == nil { // gzip has a sum at its end
				return m, io.EOF
			}
		}
		if err != nil {
			return m, schemas.Wrap(schemas.Invalid, "", "the body is no whole archive of tar", err)
		}
		if err := a.count(); err != nil {
			return m, err
		}
		if h.Typeflag == tar.TypeXGlobalHeader { // of what made it, such as the commit
			continue
		}
		m, err := a.judge(h)
		if err != nil || m.name != "." { // the folder itself is there
			return m, err
		}
	}
}

// mostPadding is how much is read behind the end of an archive, in bytes. Programs fill their last block with zeros.
const mostPadding = 1 << 20

// count counts an entry, or a folder that an entry needs. Code: exhausted.
func (a *archive) count() error {
	if a.members++; a.members > schemas.MaxFilesListed {
		return final(schemas.Errorf(schemas.Exhausted, "the archive has more than %d files and folders: send several", schemas.MaxFilesListed))
	}
	return nil
}

// judge validates an entry and returns its member. Codes: invalid, exhausted, and those of take.
func (a *archive) judge(h *tar.Header) (m member, err error) {
	refused := func(format string, args ...any) (member, error) {
		return m, schemas.Invalidf("", "the entry %q of the archive "+format, append([]any{schemas.Quotable(h.Name)}, args...)...)
	}
	m = member{name: path.Clean(h.Name), modified: h.ModTime}
	switch h.Typeflag {
	case tar.TypeReg:
		m.size, m.executable = h.Size, fs.FileMode(h.Mode)&0o111 != 0
	case tar.TypeDir:
		m.folder = true
	case tar.TypeSymlink, tar.TypeLink:
		return refused("is a link: send what it leads to (tar --dereference --hard-dereference), or leave it out")
	default:
		return refused("is neither a file nor a folder: leave it out")
	}
	switch {
	case h.Name == "" || strings.HasPrefix(h.Name, "/"):
		return refused("has no name below the folder: names are relative")
	case !schemas.FileNameFits(h.Name):
		return refused("has a name that files cannot have here: UTF-8 of at most %d bytes without line breaks, each part of at most %d",
			schemas.MaxFilePath, schemas.MaxFilePart)
	case m.name == "." && !m.folder || !m.folder && strings.HasSuffix(h.Name, "/"):
		return refused("is a file with the name of a folder")
	}
	if slices.Contains(strings.Split(h.Name, "/"), "..") {
		return refused("has a name with ..")
	}
	if before, is := a.folders[m.name]; is && (!before || !m.folder) {
		return refused("comes twice")
	}
	for above := path.Dir(m.name); above != "."; above = path.Dir(above) {
		before, is := a.folders[above]
		if is && !before {
			return refused("lies below a file of the archive")
		}
		if is {
			break // so are those above it
		}
		if err := a.count(); err != nil {
			return m, err
		}
		if err := a.take(perName); err != nil { // its bytes are those of the name below it
			return m, err
		}
		a.folders[above] = true
	}
	if a.bytes += m.size; m.size < 0 || a.bytes > schemas.MaxFileSize {
		return m, final(schemas.Errorf(schemas.Exhausted, "the files of the archive have more than %d bytes together: send several",
			schemas.MaxFileSize))
	}
	if err := a.take(int64(len(m.name)) + perName); err != nil {
		return m, err
	}
	a.folders[m.name] = m.folder
	return m, nil
}

// wrote returns err with a description of what was written before it.
func (u *Unpacked) wrote(err error) error {
	e := *schemas.Public(err)
	e.Message += fmt.Sprintf(" (before it were written: %d files with %d bytes, %d folders", u.Files, u.Bytes, u.Folders)
	if u.Last != "" {
		e.Message += fmt.Sprintf(", the last one %q", schemas.Quotable(u.Last))
	}
	e.Message += ")"
	e.Err = err
	return &e
}
