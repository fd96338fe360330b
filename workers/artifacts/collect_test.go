package artifacts_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/artifacts"
)

// desk is a workspace, and a store in memory.
type desk struct {
	t      *testing.T
	dir    string
	fsys   workspacefs.FS
	memory *artifacts.Memory

	mu     sync.Mutex
	chunks map[string][]byte
	kept   int
	room   error
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir := t.TempDir()
	root, err := safefs.Open(dir, safefs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &desk{t: t, dir: dir, fsys: root, memory: new(artifacts.Memory), chunks: map[string][]byte{}}
}

func (d *desk) path(name string) string { return filepath.Join(d.dir, name) }

func (d *desk) must(errs ...error) {
	d.t.Helper()
	for _, err := range errs {
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *desk) write(name, content string) {
	d.t.Helper()
	d.must(os.MkdirAll(filepath.Dir(d.path(name)), 0o755), os.WriteFile(d.path(name), []byte(content), 0o644))
}

// age waits for a tick of the clock of files, so that another change shows in their times.
func (d *desk) age() {
	d.t.Helper()
	time.Sleep(20 * time.Millisecond)
}

func (d *desk) remembered(a schemas.AccountID) *artifacts.CallMemory {
	r := d.memory.Of(a)
	d.t.Cleanup(r.Release)
	return r
}

func (d *desk) collector(call string, patterns ...string) *artifacts.Collector {
	d.t.Helper()
	places, err := schemas.ParseArtifactPatterns("artifacts", patterns)
	d.must(err)
	return &artifacts.Collector{
		FS: d.fsys, Places: places, Memory: d.remembered("acct_1"), Now: time.Now,
		Call: schemas.Call{Account: "acct_1", Conversation: "c", ID: schemas.CallID(call), Workspace: "ws_1"},
		Store: artifacts.Store{
			Kept: func(context.Context) (int, int64, error) { return d.kept, 0, nil },
			Room: func(context.Context, int64) error { return d.room },
			Chunk: func(_ context.Context, data []byte) (string, error) {
				sum := sha256.Sum256(data)
				name := hex.EncodeToString(sum[:])
				d.mu.Lock()
				defer d.mu.Unlock()
				d.chunks[name] = bytes.Clone(data)
				return name, nil
			},
		},
	}
}

// look is the look before a call.
func (d *desk) look(c *artifacts.Collector) artifacts.Look {
	d.t.Helper()
	l, err := c.Before(d.t.Context())
	d.must(err)
	return l
}

// found lists what a call has left: "path=content" and "path!reason", in order.
func (d *desk) found(c *artifacts.Collector, before artifacts.Look) string {
	d.t.Helper()
	list, skipped, err := c.Collect(d.t.Context(), before)
	d.must(err)
	var out []string
	for _, k := range list {
		var content []byte
		for _, name := range k.Chunks {
			content = append(content, d.chunks[name]...)
		}
		sum := sha256.Sum256(content)
		if hex.EncodeToString(sum[:]) != k.Artifact.SHA256 || int64(len(content)) != k.Artifact.Size {
			d.t.Errorf("%s: the chunks are not the content", k.Artifact.Path)
		}
		out = append(out, fmt.Sprintf("%s=%.20s", k.Artifact.Path, content))
	}
	for _, s := range skipped {
		out = append(out, s.Path+"!"+string(s.Reason))
	}
	return strings.Join(out, " ")
}

// TestWhatACallChanged is the table of what is an artifact and what is not.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestWhatACallChanged(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		patterns []string
		before   func(*desk)
		call     func(*desk)
		want     string
	}{
		{name: "nothing there", call: func(*desk) {}},
		{name: "created", call: func(d *desk) { d.write("outputs/a.txt", "a"); d.write("outputs/sub/b.txt", "b"); d.write("other", "x") },
			want: "outputs/a.txt=a outputs/sub/b.txt=b"},
		{name: "empty", call: func(d *desk) { d.write("outputs/a", "") }, want: "outputs/a="},
		{name: "unchanged", before: func(d *desk) { d.write("outputs/a", "a") }, call: func(d *desk) { d.write("outputs/b", "b") },
			want: "outputs/b=b"},
		{name: "changed", before: func(d *desk) { d.write("outputs/a", "a") }, call: func(d *desk) { d.write("outputs/a", "b") },
			want: "outputs/a=b"},
		{name: "the same bytes again", before: func(d *desk) { d.write("outputs/a", "a") }, call: func(d *desk) { d.write("outputs/a", "a") }},
		{name: "replaced by the same bytes", before: func(d *desk) { d.write("outputs/a", "a") }, call: func(d *desk) {
			d.write("outputs/tmp", "a")
			d.must(os.Rename(d.path("outputs/tmp"), d.path("outputs/a")))
		}},
		{name: "changed, with its times set back", before: func(d *desk) { d.write("outputs/a", "a") }, call: func(d *desk) {
			was, err := os.Stat(d.path("outputs/a"))
			d.must(err)
			d.write("outputs/a", "b")
			d.must(os.Chtimes(d.path("outputs/a"), was.ModTime(), was.ModTime()))
		}, want: "outputs/a=b"},
		{name: "deleted", before: func(d *desk) { d.write("outputs/a", "a") }, call: func(d *desk) { d.must(os.RemoveAll(d.path("outputs"))) }},
		{name: "moved there", before: func(d *desk) { d.write("a", "a") }, call: func(d *desk) {
			d.must(os.Mkdir(d.path("outputs"), 0o755), os.Rename(d.path("a"), d.path("outputs/a")))
		}, want: "outputs/a=a"},
		{name: "links", before: func(d *desk) { d.write("secret", "s"); d.write("outputs/old", "o") }, call: func(d *desk) {
			d.must(os.Symlink("../secret", d.path("outputs/inside")), os.Symlink("/etc/passwd", d.path("outputs/outside")),
				os.Symlink("..", d.path("outputs/folder")), os.Link(d.path("secret"), d.path("outputs/hard")),
				os.Remove(d.path("outputs/old")), os.Symlink("../secret", d.path("outputs/old")))
		}, want: "outputs/folder!link outputs/hard!hard_link outputs/inside!link outputs/old!link outputs/outside!link"},
		{name: "outputs is a link", before: func(d *desk) { d.write("elsewhere/a", "a") }, call: func(d *desk) {
			d.must(os.Symlink("elsewhere", d.path("outputs")))
			d.write("elsewhere/b", "b")
		}},
		{name: "not regular", call: func(d *desk) {
			d.must(os.Mkdir(d.path("outputs"), 0o755), syscall.Mkfifo(d.path("outputs/fifo"), 0o644))
		}, want: "outputs/fifo!not_regular"},
		{name: "huge", call: func(d *desk) {
			d.write("outputs/a", "")
			d.must(os.Truncate(d.path("outputs/a"), 1<<40))
			d.write("outputs/b", "b")
		}, want: "outputs/b=b outputs/a!too_large"},
		{name: "odd names", call: func(d *desk) {
			for _, n := range []string{"a\nb", "caf\xe9", "tab\t", "ü ñ €.txt", "$(id)", "-rf", "%2e%2e"} {
				d.write("outputs/"+n, "x")
			}
		}, want: "outputs/$(id)=x outputs/%2e%2e=x outputs/-rf=x outputs/ü ñ €.txt=x " +
			"outputs/a\nb!bad_name outputs/caf\uFFFD!bad_name outputs/tab\t!bad_name"},
		{name: "too many", call: func(d *desk) {
			for n := range schemas.MaxArtifacts + 2 {
				d.write(fmt.Sprintf("outputs/%02d", n), "")
			}
		}, want: func() string {
			var s []string
			for n := range schemas.MaxArtifacts {
				s = append(s, fmt.Sprintf("outputs/%02d=", n))
			}
			return strings.Join(append(s, "outputs/20!too_many", "outputs/21!too_many"), " ")
		}()},
		{name: "named", patterns: []string{"report.pdf", "plots/*.png", "deep/**/*.csv", "missing/x", "link/*"},
			before: func(d *desk) {
				d.write("report.pdf", "old")
				d.write("plots/b.png", "old")
				d.must(os.Symlink("plots", d.path("link")))
			}, call: func(d *desk) {
				for _, n := range []string{"report.pdf", "plots/a.png", "plots/a.txt", "plots/sub/c.png", "deep/x.csv", "deep/1/2/x.csv",
					"deep/.git/x.csv", "sub/report.pdf", "plots/.hidden.png"} {
					d.write(n, "new")
				}
			}, want: "deep/1/2/x.csv=new deep/x.csv=new plots/a.png=new report.pdf=new"},
		{name: "everything", patterns: []string{"**"}, before: func(d *desk) { d.write(".sandjet/uploads/n-1", "") },
			call: func(d *desk) { d.write("a", "a"); d.write("b/c", "c"); d.write(".sandjet/uploads/n-2", "no") }, want: "a=a b/c=c"},
	}
	reach := map[string]func(*desk){"itself": func(*desk) {}}
	for name, s := range shells(t) {
		reach[name] = func(d *desk) { d.byRuns(s) }
	}
	for by, reached := range reach {
		for _, tt := range tests {
			t.Run(tt.name+" by "+by, func(t *testing.T) {
				t.Parallel()
				d := newDesk(t)
				reached(d)
				if tt.before != nil {
					tt.before(d)
				}
				c := d.collector("call_1", tt.patterns...)
				before := d.look(c)
				d.age()
				tt.call(d)
				if got := d.found(c, before); got != tt.want {
					t.Errorf("got  %q\nwant %q", got, tt.want)
				}
				next := d.collector("call_2", tt.patterns...)
				if got := d.found(next, d.look(next)); strings.Contains(got, "=") {
					t.Errorf("the next call, which does nothing, has left %q", got)
				}
			})
		}
	}
}

// crowded is a workspace whose folder outputs has so many files.
type crowded struct {
	workspacefs.FS

	files int
}

func (c crowded) ReadDir(ctx context.Context, name string, follow bool, each func(workspacefs.Entry) error) error {
	if name != schemas.OutputsFolder {
		return c.FS.ReadDir(ctx, name, follow, each)
	}
	for n := range c.files {
		if err := each(workspacefs.Entry{Name: fmt.Sprint(n), Source: described{}}); err != nil {
			return err
		}
	}
	return nil
}

type described struct{}

func (described) Describe(string) (workspacefs.Info, error) {
	return workspacefs.Info{Size: schemas.MaxArtifactSize + 1, ModTime: time.Now()}, nil
}

// TestTenThousandFiles: files beyond the bound are reported, and nothing of them is guessed. Other folders are still checked.
func TestTenThousandFiles(t *testing.T) {
	t.Parallel()
	for files, want := range map[int]string{
		schemas.MaxArtifactsSeen: fmt.Sprint(schemas.MaxArtifactsSeen), schemas.MaxArtifactsSeen + 1: "outputs!too_many_entries",
	} {
		d := newDesk(t)
		c := d.collector("call_1", "report.pdf")
		before := d.look(c)
		c.FS = crowded{d.fsys, files}
		d.write("report.pdf", "r")
		got, named := strings.CutPrefix(d.found(c, before), "report.pdf=r ")
		if files == schemas.MaxArtifactsSeen {
			got = fmt.Sprint(strings.Count(got, "!too_large"))
		}
		if got != want || !named {
			t.Errorf("%d files: %.200q, want %q", files, got, want)
		}
	}
}

// TestTwoCallsAtOnce: each reports what changed while it ran, under ids of its own.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestTwoCallsAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	one, two := d.collector("call_1"), d.collector("call_2")
	first := d.look(one)
	d.write("outputs/a", "by one")
	second := d.look(two)
	d.age()
	d.write("outputs/b", "by two")
	if got, want := d.found(one, first), "outputs/a=by one outputs/b=by two"; got != want {
		t.Errorf("one: got %q, want %q", got, want)
	}
	if got, want := d.found(two, second), "outputs/b=by two"; got != want {
		t.Errorf("two: got %q, want %q", got, want)
	}
}

// TestBoundsOfArtifacts: each bound has its reason, and what fits is there.
func TestBoundsOfArtifacts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set  func(*desk)
		want string
	}{
		"conversation": {func(d *desk) { d.kept = schemas.MaxArtifactsKept - 1 }, "outputs/a=a outputs/b!conversation_full"},
		"account": {func(d *desk) { d.room = schemas.Errorf(schemas.Exhausted, "full") },
			"outputs/a!account_full outputs/b!account_full"},
		"log": {func(d *desk) { d.room = schemas.Errorf(schemas.Unavailable, "full") }, "outputs/a!log_full outputs/b!log_full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			tt.set(d)
			c := d.collector("call_1")
			before := d.look(c)
			d.write("outputs/a", "a")
			d.write("outputs/b", "b")
			if got := d.found(c, before); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("together", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		c := d.collector("call_1")
		c.Store.Chunk = func(context.Context, []byte) (string, error) { return "x", nil }
		before := d.look(c)
		for _, n := range []string{"outputs/a", "outputs/b", "outputs/c"} {
			d.write(n, "")
			d.must(os.Truncate(d.path(n), schemas.MaxArtifactSize))
		}
		list, skipped, err := c.Collect(t.Context(), before)
		if err != nil || len(list) != 2 || len(list[0].Chunks) != int(schemas.MaxArtifactSize/streams.ArtifactChunk) {
			t.Errorf("%d artifacts, %v", len(list), err)
		}
		if len(skipped) != 1 || skipped[0].Reason != schemas.SkipTooLargeTogether || skipped[0].Path != "outputs/c" {
			t.Errorf("skipped %+v", skipped)
		}
	})
}

// changing is a workspace in which a file is changed while it is read.
type changing struct {
	workspacefs.FS

	change func()
}

func (c changing) Open(ctx context.Context, name string) (workspacefs.File, error) {
	f, err := c.FS.Open(ctx, name)
	return changingFile{f, c.change}, err
}

type changingFile struct {
	workspacefs.File

	change func()
}

func (f changingFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.change()
	return n, err
}

// TestAFileThatChangesWhileItIsRead is no artifact: versions are never mixed.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestAFileThatChangesWhileItIsRead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	n := 0
	d.fsys = changing{d.fsys, func() { n++; d.write("outputs/a", fmt.Sprint("version ", 100+n)); d.age() }}
	c := d.collector("call_1")
	before := d.look(c)
	d.write("outputs/a", "version 100")
	if got, want := d.found(c, before), "outputs/a!changed_while_read"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBoundsHoldWhileFilesChange: whatever files do while they are read, a call stores no more bytes than its artifacts may have, those of
// versions that were not read to their end among them; and what it could not store has a reason.
func TestBoundsHoldWhileFilesChange(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	for name, tt := range map[string]struct {
		change func(d *desk, file string, chunks int)
		want   map[schemas.SkipReason]bool
	}{
		"they are written to at their end": {func(d *desk, file string, chunks int) {
			if chunks%(size/streams.ArtifactChunk) == 0 {
				d.must(os.Chtimes(d.path(file), time.Unix(int64(chunks), 0), time.Unix(int64(chunks), 0)))
			}
		}, map[schemas.SkipReason]bool{schemas.SkipChanged: true, schemas.SkipTooLargeTogether: true}},
		"they grow": {func(d *desk, file string, chunks int) {
			d.must(os.Truncate(d.path(file), int64(size+chunks)))
		}, map[schemas.SkipReason]bool{schemas.SkipChanged: true}},
		"they are smaller when they are looked at": {func(*desk, string, int) {}, map[schemas.SkipReason]bool{schemas.SkipTooLargeTogether: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			c := d.collector("call_1")
			var stored int64
			var admitted int64
			chunks, file := 0, ""
			c.Store.Room = func(_ context.Context, n int64) error { admitted += n; return nil }
			c.Store.Chunk = func(_ context.Context, data []byte) (string, error) {
				stored += int64(len(data))
				chunks++
				tt.change(d, file, chunks)
				return "x", nil
			}
			before := d.look(c)
			for n := range schemas.MaxArtifacts {
				d.write(fmt.Sprintf("outputs/%02d", n), "")
				if name != "they are smaller when they are looked at" {
					d.must(os.Truncate(d.path(fmt.Sprintf("outputs/%02d", n)), size))
				}
			}
			c.FS = named{d.fsys, func(name string) {
				if file = name; strings.HasPrefix(filepath.Base(name), "0") || strings.HasPrefix(filepath.Base(name), "1") {
					if info, err := os.Stat(d.path(name)); err == nil && info.Size() == 0 {
						d.must(os.Truncate(d.path(name), size))
					}
				}
			}}
			list, skipped, err := c.Collect(t.Context(), before)
			if err != nil || len(list)+len(skipped) != schemas.MaxArtifacts {
				t.Errorf("%d artifacts, %d skipped: %v", len(list), len(skipped), err)
			}
			if stored > schemas.MaxArtifactsSize || stored > admitted {
				t.Errorf("%d bytes are stored, of %d that the account was asked room for", stored, admitted)
			}
			for _, s := range skipped {
				if !tt.want[s.Reason] {
					t.Errorf("%s: %s", s.Path, s.Reason)
				}
			}
		})
	}
}

// named is a workspace that says which file is opened, before it is.
type named struct {
	workspacefs.FS

	open func(name string)
}

func (n named) Open(ctx context.Context, name string) (workspacefs.File, error) {
	n.open(name)
	return n.FS.Open(ctx, name)
}

// TestAFileThatBecomesALink is not read through the link.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestAFileThatBecomesALink(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write("secret", "secret")
	c := d.collector("call_1")
	before := d.look(c)
	d.write("outputs/a", "a")
	c.FS = opening{d.fsys, func() {
		_ = os.Remove(d.path("outputs/a"))
		d.must(os.Symlink("../secret", d.path("outputs/a")))
	}}
	if got, want := d.found(c, before), "outputs/a!changed_while_read"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

type opening struct {
	workspacefs.FS

	first func()
}

func (o opening) Open(ctx context.Context, name string) (workspacefs.File, error) {
	o.first()
	return o.FS.Open(ctx, name)
}

// BenchmarkNoOutputs is what a call costs whose workspace has no folder outputs: both looks.
func BenchmarkNoOutputs(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		root, err := safefs.Open(dir, safefs.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if l, err := artifacts.Places(nil).Look(b.Context(), root, nil); err != nil || len(l.Found) > 0 {
			b.Fatal(l, err)
		}
		_ = root.Close()
	}
}
