package providertest

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

// Objects is a workspace in an object store: keys without directories, objects that are only ever replaced as a
// whole, versions instead of inodes. The store is this process's memory, so it is for tests, and an example of how
// such a workspace is made. A directory is an object of its own whose key ends with a slash, so that an empty one
// stays. It holds symbolic links as objects too, as gateways of object stores to file systems do.
type Objects struct {
	mu      sync.Mutex
	objects map[string]object
	version int64
}

// object is one version of one object. Its content is never changed.
type object struct {
	mode    fs.FileMode
	content []byte // the target of a link
	changed time.Time
	version int64
}

// NewObjects returns an empty store.
func NewObjects() *Objects { return &Objects{objects: map[string]object{}} }

// Put makes an object of any mode, and the directories above it, as if another process had put it there. The name must be clean. The
// content of a link is its target.
func (o *Objects) Put(name string, mode fs.FileMode, content []byte, changed time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.above(name)
	o.put(keyOf(name, mode), object{mode: mode, content: content, changed: changed})
}

// FS returns the workspace, which refuses every change if readOnly is set.
func (o *Objects) FS(readOnly bool) workspacefs.FS { return objectFS{o, readOnly} }

func keyOf(name string, mode fs.FileMode) string {
	if mode.IsDir() {
		return name + "/"
	}
	return name
}

func (o *Objects) put(key string, v object) {
	o.version++
	v.version = o.version
	o.objects[key] = v
}

// above makes the directories above a name.
func (o *Objects) above(name string) {
	for i := range len(name) {
		if _, is := o.objects[name[:i+1]]; name[i] == '/' && !is {
			o.put(name[:i+1], object{mode: fs.ModeDir | 0o755, changed: time.Now()})
		}
	}
}

// at returns the object with a resolved name.
func (o *Objects) at(name string) (object, bool) {
	if name == "." {
		return object{mode: fs.ModeDir | 0o755}, true
	}
	if v, is := o.objects[name]; is {
		return v, true
	}
	v, is := o.objects[name+"/"]
	return v, is
}

// resolve follows the links in a clean name, the last component's where last is set, and says where it leads: to a
// name that need not exist, in a directory that need not exist where create is set.
func (o *Objects) resolve(name string, last, create bool) (string, error) {
	const most = 40
	links := most
	return o.resolveFrom(".", name, last, create, &links)
}

func (o *Objects) resolveFrom(at, rest string, last, create bool, links *int) (string, error) {
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && at == ".":
			return "", workspacefs.ErrEscape
		case part == "..":
			at = path.Dir(at)
			continue
		}
		here, is := o.at(at)
		switch {
		case !is && !create:
			return "", workspacefs.ErrNotFound
		case is && !here.mode.IsDir():
			return "", workspacefs.ErrNotDirectory
		}
		v, is := o.at(path.Join(at, part))
		if !is || v.mode&fs.ModeSymlink == 0 || rest == "" && !last {
			at = path.Join(at, part)
			continue
		}
		target := string(v.content)
		if *links--; *links < 0 {
			return "", workspacefs.ErrLoop
		}
		if strings.HasPrefix(target, "/") {
			return "", workspacefs.ErrEscape
		}
		led, err := o.resolveFrom(at, target, true, false, links)
		_, is = o.at(led)
		if create && rest != "" && (err == nil && !is || workspacefs.CodeOf(err) == workspacefs.ErrNotFound) {
			return "", workspacefs.ErrNotDirectory // a link to nothing is no directory to make things in
		}
		if err != nil {
			return "", err
		}
		at = led
	}
	return at, nil
}

// objectFS is a store's workspace as an [workspacefs.FS].
type objectFS struct {
	store    *Objects
	readOnly bool
}

// begin checks the arguments of every method and locks the store. It returns the function that unlocks it.
func (f objectFS) begin(ctx context.Context, changes bool, names ...*string) (end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if changes && f.readOnly {
		return nil, workspacefs.ErrReadOnly
	}
	for _, name := range names {
		if *name, err = workspacefs.Clean(*name); err != nil {
			return nil, err
		}
	}
	f.store.mu.Lock()
	return f.store.mu.Unlock, nil
}

// find returns the object that a name leads to.
func (f objectFS) find(name string, follow bool) (string, object, error) {
	at, err := f.store.resolve(name, follow, false)
	if err != nil {
		return "", object{}, err
	}
	v, is := f.store.at(at)
	if !is {
		return "", object{}, workspacefs.ErrNotFound
	}
	return at, v, nil
}

// Open opens one version of an object.
func (f objectFS) Open(ctx context.Context, name string) (workspacefs.File, error) {
	end, err := f.begin(ctx, false, &name)
	if err != nil {
		return nil, err
	}
	defer end()
	at, v, err := f.find(name, true)
	if err != nil {
		return nil, err
	}
	if err := v.regular(); err != nil {
		return nil, err
	}
	return &objectFile{bytes.NewReader(v.content), objectInfo{path.Base(at), v}}, nil
}

func (v object) regular() error {
	switch {
	case v.mode.IsDir():
		return workspacefs.ErrIsDirectory
	case !v.mode.IsRegular():
		return workspacefs.ErrNotRegular
	}
	return nil
}

// Stat describes an object.
func (f objectFS) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	end, err := f.begin(ctx, false, &name)
	if err != nil {
		return nil, err
	}
	defer end()
	at, v, err := f.find(name, true)
	if err != nil {
		return nil, err
	}
	return objectInfo{path.Base(at), v}, nil
}

// ReadDir calls each with the objects whose keys consist of the directory's key and a name without a slash.
func (f objectFS) ReadDir(ctx context.Context, name string, follow bool, each func(workspacefs.Entry) error) error {
	end, err := f.begin(ctx, false, &name)
	if err != nil {
		return err
	}
	at, v, err := f.find(name, follow)
	var page []workspacefs.Entry
	if err == nil && v.mode.IsDir() {
		page = f.store.list(at)
	}
	end()
	if err != nil {
		return err
	}
	if !v.mode.IsDir() {
		return workspacefs.ErrNotDirectory
	}
	for _, e := range page {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

func (o *Objects) list(dir string) (page []workspacefs.Entry) {
	prefix := ""
	if dir != "." {
		prefix = dir + "/"
	}
	for key, v := range o.objects {
		name, below := strings.CutPrefix(strings.TrimSuffix(key, "/"), prefix)
		if below && name != "" && !strings.Contains(name, "/") && key != prefix {
			page = append(page, workspacefs.Entry{Name: name, Type: v.mode.Type(), Source: v})
		}
	}
	return page
}

// Describe is for [workspacefs.Entry].
func (v object) Describe(string) (workspacefs.Info, error) {
	return workspacefs.Info{Size: int64(len(v.content)), ModTime: v.changed}, nil
}

// Write replaces an object by a new version, provided that it is unchanged since was.
func (f objectFS) Write(ctx context.Context, name string, content []byte, mode workspacefs.Mode, was fs.FileInfo) error {
	end, err := f.begin(ctx, true, &name)
	if err != nil {
		return err
	}
	defer end()
	at, err := f.store.resolve(name, true, true)
	if err != nil {
		return err
	}
	v, is := f.store.at(at)
	if !is {
		v = object{mode: 0o644}
	}
	before, known := was.(objectInfo)
	switch {
	case is && v.regular() != nil:
		return v.regular()
	case is && mode == workspacefs.Create:
		return workspacefs.ErrExists
	case was != nil && (!is || !known || before.version != v.version):
		return workspacefs.ErrChanged
	}
	if mode == workspacefs.Append {
		content = append(bytes.Clone(v.content), content...)
	}
	f.store.above(at)
	f.store.put(at, object{mode: v.mode, content: bytes.Clone(content), changed: time.Now()})
	return nil
}

// MkdirAll makes the objects of directories.
func (f objectFS) MkdirAll(ctx context.Context, name string) error {
	end, err := f.begin(ctx, true, &name)
	if err != nil {
		return err
	}
	defer end()
	at, err := f.store.resolve(name, true, true)
	if err != nil {
		return err
	}
	if v, is := f.store.at(at); is {
		if !v.mode.IsDir() {
			return workspacefs.ErrNotDirectory
		}
		return nil
	}
	f.store.above(at + "/")
	return nil
}

// Rename moves an object, or all below a directory.
func (f objectFS) Rename(ctx context.Context, from, to string) error {
	end, err := f.begin(ctx, true, &from, &to)
	if err != nil {
		return err
	}
	defer end()
	if from == "." || to == "." {
		return fmt.Errorf("%w: the root itself", workspacefs.ErrBadName)
	}
	from, v, err := f.find(from, false)
	if err != nil {
		return err
	}
	if to, err = f.store.resolve(to, false, false); err != nil {
		return err
	}
	there, is := f.store.at(to)
	if parent, has := f.store.at(path.Dir(to)); !has || !parent.mode.IsDir() {
		return workspacefs.ErrNotFound
	}
	switch {
	case from == to:
		return nil
	case strings.HasPrefix(to, from+"/"):
		return fmt.Errorf("move a directory into itself: %w", fs.ErrInvalid)
	case is && there.mode.IsDir():
		return workspacefs.ErrIsDirectory
	case is && v.mode.IsDir():
		return workspacefs.ErrExists
	}
	for key, v := range f.store.objects {
		if rest, below := strings.CutPrefix(key, from); key == from || below && rest[0] == '/' {
			delete(f.store.objects, key)
			f.store.objects[to+rest] = v
		}
	}
	return nil
}

// Remove removes an object.
func (f objectFS) Remove(ctx context.Context, name string) error {
	end, err := f.begin(ctx, true, &name)
	if err != nil {
		return err
	}
	defer end()
	if name == "." {
		return fmt.Errorf("%w: the root itself", workspacefs.ErrBadName)
	}
	at, v, err := f.find(name, false)
	if err != nil {
		return err
	}
	if v.mode.IsDir() && len(f.store.list(at)) > 0 {
		return workspacefs.ErrNotEmpty
	}
	delete(f.store.objects, keyOf(at, v.mode))
	return nil
}

// Close does nothing: there is no connection.
func (f objectFS) Close() error { return nil }

// objectFile is one version of an object, read by range.
type objectFile struct {
	*bytes.Reader

	info objectInfo
}

func (f *objectFile) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *objectFile) Close() error { return nil }

// objectInfo describes one version of an object.
type objectInfo struct {
	name string
	object
}

func (i objectInfo) Name() string       { return i.name }
func (i objectInfo) Size() int64        { return int64(len(i.content)) }
func (i objectInfo) Mode() fs.FileMode  { return i.mode }
func (i objectInfo) ModTime() time.Time { return i.changed }
func (i objectInfo) IsDir() bool        { return i.mode.IsDir() }
func (i objectInfo) Sys() any           { return nil }
