//go:build linux

package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The images.
const (
	Busybox = "sandjet-test/busybox" // busybox and bash
	Shell   = "sandjet-test/shell"   // busybox without bash
	Tools   = "sandjet-test/tools"   // bash, coreutils and more of this host's programs
	Web     = "sandjet-test/web"     // the same with curl, python3, and the certificates that this host trusts
)

// Image builds an image on the engine unless it exists, and returns its name.
func (e *Engine) Image(tb testing.TB, name string) string {
	tb.Helper()
	once, _ := e.images.LoadOrStore(name, sync.OnceValue(func() error { return e.makeImage(name) }))
	if build, ok := once.(func() error); ok {
		if err := build(); err != nil {
			tb.Fatal(err)
		}
	}
	return name
}

func (e *Engine) makeImage(name string) error {
	if _, err := e.Docker(nil, "image", "inspect", name); err == nil {
		return nil
	}
	r := &root{entries: map[string]bool{}}
	r.tar = tar.NewWriter(&r.archive)
	for _, dir := range []string{"bin", "usr", "etc", "proc", "sys", "dev", "tmp", "home"} {
		r.folder(dir)
	}
	for _, program := range programsOf(name) {
		if err := r.program(program); err != nil {
			return err
		}
	}
	if name == Web {
		if err := errors.Join(r.file(certificates, strings.TrimPrefix(certificates, "/")), r.python()); err != nil {
			return err
		}
	}
	if err := r.busybox(); err != nil {
		return err
	}
	r.text("etc/passwd", "root:x:0:0::/:/bin/sh\nsandbox:x:1000:1000::/home/sandbox:/bin/sh\n")
	if err := errors.Join(r.err, r.tar.Close()); err != nil {
		return err
	}
	_, err := e.Docker(r.archive.Bytes(), "import", "--change", "ENV PATH=/bin", "-", name)
	return err
}

// programsOf returns the programs of this host that an image has instead of busybox's. If one is not installed here, the image has
// busybox's.
func programsOf(name string) []string {
	switch name {
	case Shell:
		return nil
	case Busybox:
		return []string{"bash"}
	}
	tools := strings.Fields("bash [ base64 basename cat chmod chown cp cut date dd df dirname du env expr false head id install ln ls " +
		"mkdir mkfifo mktemp mv nproc od paste printf pwd readlink realpath rm rmdir seq sha256sum sleep sort split stat tail tee test " +
		"timeout touch tr true truncate uniq wc whoami xargs yes grep sed find setsid ps kill rg git")
	if name == Web {
		tools = append(tools, "curl")
	}
	return tools
}

// certificates is the file of the certificates that this host trusts.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// python adds this host's python3 with its library to a folder of its own: the program finds its library relative to itself.
func (r *root) python() error {
	const home = "opt/python"
	out, err := exec.CommandContext(context.Background(), "python3", "-c",
		"import os, sys; print(os.path.realpath(sys.executable)); print(os.path.dirname(os.__file__))").Output()
	if err != nil {
		return fmt.Errorf("python3: %w", err)
	}
	program, library, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	name := filepath.Base(library) // python3.13
	if err := r.linked(program, home+"/bin/"+name); err != nil {
		return err
	}
	r.add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/python3", Linkname: "/" + home + "/bin/" + name, Mode: 0o777}, nil)
	leftOut := strings.Fields("test tests site-packages dist-packages idlelib tkinter ensurepip __pycache__ lib2to3")
	return filepath.WalkDir(library, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(leftOut, entry.Name()), strings.HasPrefix(entry.Name(), "config-"):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		as := home + "/lib/" + name + strings.TrimPrefix(path, library)
		if strings.HasSuffix(path, ".so") {
			return r.linked(path, as)
		}
		return r.file(path, as)
	})
}

// root is a root file system that is being packed.
type root struct {
	archive bytes.Buffer
	tar     *tar.Writer
	entries map[string]bool
	err     error
}

func (r *root) add(h tar.Header, content []byte) {
	if r.err != nil || r.entries[h.Name] {
		return
	}
	r.entries[h.Name] = true
	h.Size, h.ModTime = int64(len(content)), time.Unix(0, 0)
	if r.err = r.tar.WriteHeader(&h); r.err == nil {
		_, r.err = r.tar.Write(content)
	}
}

func (r *root) folder(name string) {
	mode := int64(0o755)
	if name == "tmp" {
		mode = 0o1777
	}
	r.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (r *root) text(name, content string) {
	r.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, []byte(content))
}

// file copies a file of this host, and creates the folders above it.
func (r *root) file(path, as string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var above string
	for part := range strings.SplitSeq(filepath.Dir(as), "/") {
		above = strings.TrimPrefix(above+"/"+part, "/")
		if above != "" && above != "." {
			r.folder(above)
		}
	}
	r.add(tar.Header{Typeflag: tar.TypeReg, Name: as, Mode: 0o755}, content)
	return r.err
}

// busybox adds the static program, and a link for each of its applets whose name is not taken.
func (r *root) busybox() error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(context.Background(), path, "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox --list: %w", err)
	}
	if err := r.file(path, "bin/busybox"); err != nil {
		return err
	}
	for applet := range strings.FieldsSeq(string(out)) {
		r.add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}, nil)
	}
	return r.err
}

// program adds a program of this host, instead of busybox's, with the libraries that it is linked to.
func (r *root) program(name string) error {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	return r.linked(path, "bin/"+name)
}

// linked copies a program or library of this host with the libraries that it is linked to.
func (r *root) linked(path, as string) error {
	if err := r.file(path, as); err != nil {
		return err
	}
	out, err := exec.CommandContext(context.Background(), "ldd", path).Output()
	if err != nil {
		return nil // a static program
	}
	for word := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(word, "/") {
			continue
		}
		if err := r.file(word, strings.TrimPrefix(word, "/")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
