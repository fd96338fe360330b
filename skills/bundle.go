package skills

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// FileName is the file that makes a folder a skill.
const FileName = "SKILL.md"

// File is one file of a bundle.
type File struct {
	Path       string // relative to the skill's folder, clean, with slashes
	Executable bool
	Content    []byte
}

// Bundle is a skill with its files. Make it with [New] or [Read].
type Bundle struct {
	Manifest schemas.SkillManifest
	Files    []File // by path
}

// New makes a bundle of files, which may all lie in one folder: that then has the name of the skill. It keeps the contents, so its caller
// must not change them. Codes: invalid, exhausted (too many or too large).
func New(files []File) (Bundle, error) {
	list := slices.Clone(files)
	var size int64
	if len(list) > schemas.MaxSkillFiles {
		return Bundle{}, tooMany()
	}
	for i, f := range list {
		name, err := clean(f.Path)
		if err != nil {
			return Bundle{}, err
		}
		if len(f.Content) > schemas.MaxSkillFile {
			return Bundle{}, tooLarge(name)
		}
		if size += int64(len(f.Content)); size > schemas.MaxSkillBundle {
			return Bundle{}, bundleTooLarge()
		}
		list[i].Path = name
	}
	folder, err := stripFolder(list)
	if err != nil {
		return Bundle{}, err
	}
	slices.SortFunc(list, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	if err := distinct(list); err != nil {
		return Bundle{}, err
	}
	at, ok := slices.BinarySearchFunc(list, FileName, func(f File, name string) int { return cmp.Compare(f.Path, name) })
	if !ok {
		return Bundle{}, schemas.Invalidf(FileName, "is missing: a skill is a folder with this file, written so")
	}
	m, err := ParseManifest(list[at].Content)
	if err != nil {
		return Bundle{}, err
	}
	if folder != "" && folder != m.Name {
		return Bundle{}, schemas.Invalidf(FileName, "says the name %q in the folder %q: they must be the same",
			schemas.Quotable(m.Name), schemas.Quotable(folder))
	}
	return Bundle{Manifest: m, Files: list}, nil
}

// stripFolder takes the one folder off that all files lie in, if SKILL.md is not above it.
func stripFolder(list []File) (folder string, err error) {
	if len(list) == 0 || slices.ContainsFunc(list, func(f File) bool { return f.Path == FileName }) {
		return "", nil
	}
	folder, _, _ = strings.Cut(list[0].Path, "/")
	for _, f := range list {
		if !strings.HasPrefix(f.Path, folder+"/") {
			return "", schemas.Invalidf(FileName, "is missing: it stands at the top, or in the one folder that everything is in")
		}
	}
	for i, f := range list {
		list[i].Path = f.Path[len(folder)+1:]
	}
	return folder, nil
}

// Read reads a bundle from a tar, compressed by gzip or not. Other entries than files and folders are refused. It holds no more than the
// limits of a bundle. Codes: invalid, exhausted, and what r returns.
func Read(r io.Reader) (Bundle, error) {
	// What a tar adds to its files, and what it may have behind its end.
	const around = (schemas.MaxSkillFiles*4 + 64) << 10
	in := bufio.NewReader(r)
	var source io.Reader = in
	if head, err := in.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return Bundle{}, notTar(err)
		}
		source = z
	}
	archive := tar.NewReader(&bounded{r: source, left: schemas.MaxSkillBundle + around})
	var content bytes.Buffer
	return read(archive, func(size int64) ([]byte, error) {
		content.Reset() // it grows with what is really there, and what is kept of it is as large as that
		if _, err := io.Copy(&content, io.LimitReader(archive, size)); err != nil {
			return nil, notTar(err)
		}
		if int64(content.Len()) != size {
			return nil, notTar(io.ErrUnexpectedEOF)
		}
		return bytes.Clone(content.Bytes()), nil
	})
}

// Parse reads a bundle from a tar that [Bundle.Tar] has made. The contents of its files are parts of that slice, so the caller must not
// change it, and the bundle takes no memory of its own for them. Codes: invalid, exhausted.
func Parse(whole []byte) (Bundle, error) {
	r := bytes.NewReader(whole)
	archive := tar.NewReader(r)
	return read(archive, func(size int64) ([]byte, error) {
		at := int64(len(whole)) - int64(r.Len()) // behind the header: it is read block by block
		if at+size > int64(len(whole)) {
			return nil, notTar(io.ErrUnexpectedEOF)
		}
		return whole[at : at+size : at+size], nil
	})
}

// read reads the entries of a tar. Content returns that of the entry that is next.
func read(archive *tar.Reader, content func(size int64) ([]byte, error)) (Bundle, error) {
	var files []File
	var size int64
	for entries := 0; ; entries++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Bundle{}, notTar(err)
		}
		if entries > 4*schemas.MaxSkillFiles {
			return Bundle{}, tooMany()
		}
		switch h.Typeflag {
		case tar.TypeReg:
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		default:
			return Bundle{}, schemas.Invalidf("bundle", "%q is neither a file nor a folder: links and devices are refused", schemas.Quotable(h.Name))
		}
		switch {
		case len(files) == schemas.MaxSkillFiles:
			return Bundle{}, tooMany()
		case h.Size > schemas.MaxSkillFile:
			return Bundle{}, tooLarge(h.Name)
		}
		if size += h.Size; size > schemas.MaxSkillBundle {
			return Bundle{}, bundleTooLarge()
		}
		b, err := content(h.Size)
		if err != nil {
			return Bundle{}, err
		}
		files = append(files, File{Path: h.Name, Executable: h.Mode&0o100 != 0, Content: b})
	}
	if len(files) == 0 {
		return Bundle{}, schemas.Invalidf("bundle", "has no files: send a tar of the skill's folder")
	}
	return New(files)
}

// bounded ends with an error where more comes than there may be.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, bundleTooLarge()
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Tar is the bundle in its one form: files alone, by path, without times and owners.
func (b Bundle) Tar() ([]byte, error) {
	var out bytes.Buffer
	const header, block = 4 << 10, 512 // of a file: more than a header with its longest path takes, and what fills the last block
	size := block * 2
	for _, f := range b.Files {
		size += header + len(f.Content)
	}
	out.Grow(size) // or it would be there twice while it grows
	w := tar.NewWriter(&out)
	for _, f := range b.Files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: int64(len(f.Content)), Mode: Mode(f.Executable), Format: tar.FormatPAX}
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("write %s into a tar: %w", schemas.Quotable(f.Path), err)
		}
		if _, err := w.Write(f.Content); err != nil {
			return nil, fmt.Errorf("write %s into a tar: %w", schemas.Quotable(f.Path), err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write a tar: %w", err)
	}
	return out.Bytes(), nil
}

// Mode is the mode of a file of a bundle.
func Mode(executable bool) int64 {
	if executable {
		return 0o755
	}
	return 0o644
}

// Skill is the file SKILL.md.
func (b Bundle) Skill() []byte {
	for _, f := range b.Files {
		if f.Path == FileName {
			return f.Content
		}
	}
	return nil
}

// Digest names a bundle by its tar: SHA-256 in hex.
func Digest(tar []byte) string {
	sum := sha256.Sum256(tar)
	return hex.EncodeToString(sum[:])
}

// clean is a path of a file in its one form. Code: invalid.
func clean(p string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", schemas.Invalidf("bundle", "%q %s", schemas.Quotable(strings.ToValidUTF8(p, "\uFFFD")), why)
	}
	switch {
	case !utf8.ValidString(p):
		return refuse("is not the name of a file in UTF-8")
	case strings.HasPrefix(p, "/") || strings.Contains(p, "\\") || len(p) > 1 && p[1] == ':':
		return refuse("is not a path below the skill's folder, with slashes")
	case strings.ContainsFunc(p, unicode.IsControl):
		return refuse("has a control character")
	case len(p) > schemas.MaxSkillPath:
		return refuse(fmt.Sprintf("is longer than %d bytes", schemas.MaxSkillPath))
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return refuse("leads out of the skill's folder")
		}
		if len(part) > 255 {
			return refuse("has a name of more than 255 bytes")
		}
	}
	name := path.Clean(p)
	if name == "." || strings.HasSuffix(p, "/") {
		return refuse("is not the name of a file")
	}
	if path.Base(name) == schemas.SkillMark {
		return refuse("has a name that is kept for where skills are staged")
	}
	return name, nil
}

// distinct refuses paths that some file system would take for the same, and files where others have a folder. The list is by path.
func distinct(list []File) error {
	seen := make(map[string]string, 2*len(list)) // every file and folder, in lower case, to how it is written
	for _, f := range list {
		for at := f.Path; at != "."; at = path.Dir(at) {
			was, is := seen[fold(at)]
			switch {
			case !is:
			case was != at:
				return schemas.Invalidf("bundle", "%q and %q differ in upper and lower case alone", schemas.Quotable(was), schemas.Quotable(at))
			case at == f.Path:
				return schemas.Invalidf("bundle", "%q is there twice", schemas.Quotable(at))
			}
			seen[fold(at)] = at
		}
	}
	files := make(map[string]bool, len(list))
	for _, f := range list {
		files[f.Path] = true
	}
	for _, f := range list {
		for at := path.Dir(f.Path); at != "."; at = path.Dir(at) {
			if files[at] {
				return schemas.Invalidf("bundle", "%q is a file and a folder", schemas.Quotable(at))
			}
		}
	}
	return nil
}

// fold makes one of the forms that differ in case alone.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

func tooMany() error {
	return schemas.Errorf(schemas.Exhausted, "the bundle has more than %d files: leave out what the skill does not need",
		schemas.MaxSkillFiles)
}

func tooLarge(name string) error {
	return schemas.Errorf(schemas.Exhausted, "%q is larger than %d bytes, the most that a file of a skill may have",
		schemas.Quotable(strings.ToValidUTF8(name, "\uFFFD")), schemas.MaxSkillFile)
}

func bundleTooLarge() error {
	return schemas.Errorf(schemas.Exhausted, "the bundle is larger than %d bytes: keep large data elsewhere", schemas.MaxSkillBundle)
}

// notTar is the error of something that is no tar; an error of its source stays as it is.
func notTar(err error) error {
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return schemas.Invalidf("bundle", "is not a tar that can be read to its end: send one, compressed by gzip or not")
}
