package files

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// counted is files of which there are some, with the size of each, and that count how often they are measured.
type counted struct {
	workspacefs.FS

	mu       sync.Mutex
	sizes    map[string]int64
	measures int
	measured func() // called while they are measured
}

func (c *counted) Used(context.Context, int, int64) (n int, sum int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.measures++
	for _, size := range c.sizes {
		sum += size
	}
	if c.measured != nil {
		c.measured()
	}
	return len(c.sizes), sum, nil
}

type sized struct {
	fs.FileInfo
	size int64
}

func (s sized) Size() int64 { return s.size }

func (c *counted) Stat(_ context.Context, name string) (fs.FileInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if size, ok := c.sizes[name]; ok {
		return sized{size: size}, nil
	}
	return nil, workspacefs.ErrNotFound
}

func request(op schemas.FileOp, name string) schemas.FileRequest {
	q := schemas.FileRequest{Account: "acct_1", Workspace: "ws_1", Op: op, Path: name}
	if op == schemas.FileCommit {
		q.Path, q.To = schemas.UploadsFolder+"/n-1", name
	}
	return q
}

// TestRoom: what a request may add to a workspace with room for 3 files, 100 bytes, 40 bytes of one.
//
//guarantee:bounds
func TestRoom(t *testing.T) {
	t.Parallel()
	two := map[string]int64{"a": 40, "b": 20}
	three := map[string]int64{"a": 40, "b": 20, "c": 0}
	full := map[string]int64{"a": 40, "b": 40, "c": 20}
	over := map[string]int64{"a": 400, "b": 40, "c": 20, "d": 1}
	const fine = schemas.Code("")
	for name, c := range map[string]struct {
		there  map[string]int64
		op     schemas.FileOp
		path   string
		n      int
		offset int64 // of a commit its size
		code   schemas.Code
		says   string
	}{
		"a file of the most":                 {nil, schemas.FileWrite, "x", 40, 0, fine, ""},
		"a byte more":                        {nil, schemas.FileWrite, "x", 41, 0, schemas.Invalid, "--s3-file-size"},
		"its last piece":                     {nil, schemas.FileAppend, "x", 10, 30, fine, ""},
		"a piece behind the most":            {nil, schemas.FileAppend, "x", 10, 31, schemas.Invalid, "40 bytes"},
		"a commit of too much":               {nil, schemas.FileCommit, "x", 0, 41, schemas.Invalid, "--s3-file-size"},
		"the last bytes":                     {two, schemas.FileWrite, "x", 40, 0, fine, ""},
		"the last bytes by a piece":          {two, schemas.FileAppend, "x", 40, 0, fine, ""},
		"one byte more than that":            {map[string]int64{"a": 61}, schemas.FileAppend, "x", 40, 0, schemas.Exhausted, "--s3-bytes"},
		"one file too many":                  {three, schemas.FileWrite, "x", 0, 0, schemas.Exhausted, "3 files (--s3-files)"},
		"one file too many by a commit":      {three, schemas.FileCommit, "x", 0, 10, schemas.Exhausted, "--s3-files"},
		"one folder too many":                {three, schemas.FileMkdir, "x", 0, 0, schemas.Exhausted, "--s3-files"},
		"a folder that is there":             {three, schemas.FileMkdir, "c", 0, 0, fine, ""},
		"a piece, with all files there":      {three, schemas.FileAppend, "x", 40, 0, fine, ""},
		"a replaced file among all":          {three, schemas.FileWrite, "a", 40, 0, fine, ""},
		"a replaced file of the same size":   {full, schemas.FileWrite, "a", 40, 0, fine, ""},
		"a replaced file that is larger":     {full, schemas.FileWrite, "c", 21, 0, schemas.Exhausted, "--s3-bytes"},
		"a commit over a file":               {full, schemas.FileCommit, "a", 0, 40, fine, ""},
		"nothing to a full one":              {full, schemas.FileAppend, "x", 0, 0, fine, ""},
		"a smaller file to one that is over": {over, schemas.FileWrite, "a", 1, 0, fine, ""},
		"a new file to one that is over":     {over, schemas.FileWrite, "x", 1, 0, schemas.Exhausted, "remove some"},
		"a removal in one that is over":      {over, schemas.FileRemove, "a", 0, 0, fine, ""},
		"a look at one that is over":         {over, schemas.FileStat, "a", 0, 0, fine, ""},
		"a move in one that is over":         {over, schemas.FileMove, "a", 0, 0, fine, ""},
	} {
		r := &Room{Files: 3, Bytes: 100, FileSize: 40}
		q := request(c.op, c.path)
		q.Offset = c.offset
		if c.op == schemas.FileCommit {
			q.Offset, q.Size = 0, c.offset
		}
		fsys := &counted{sizes: c.there}
		err := r.admit(t.Context(), fsys, q, c.n)
		if schemas.CodeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s with %q", name, err, c.code, c.says)
		}
		if fsys.measures > 1 {
			t.Errorf("%s: measured %d times", name, fsys.measures)
		}
	}
	var none *Room
	if err := none.admit(t.Context(), &counted{sizes: over}, request(schemas.FileWrite, "x"), 1000); err != nil {
		t.Errorf("without a room: %v", err)
	}
	if err := (&Room{}).admit(t.Context(), struct{ workspacefs.FS }{}, request(schemas.FileWrite, "x"), 1000); err != nil {
		t.Errorf("a store that has limits itself: %v", err)
	}
}

// TestWritersShareRoom: of many that write at the same moment as many are admitted as there is room for, also while it is being measured.
//
//guarantee:bounds
func TestWritersShareRoom(t *testing.T) {
	t.Parallel()
	r := &Room{Files: 1000, Bytes: 100, FileSize: 40}
	fsys := &counted{sizes: map[string]int64{"a": 40}}
	var admitted atomic.Int64
	var writers sync.WaitGroup
	for n := range slots {
		writers.Go(func() {
			for i := range 10 {
				q := request(schemas.FileAppend, fmt.Sprintf("%s/n-%d-%d", schemas.UploadsFolder, n, i))
				if err := r.admit(t.Context(), fsys, q, 10); err == nil {
					admitted.Add(1)
					fsys.mu.Lock()
					fsys.sizes[q.Path] = 10
					fsys.mu.Unlock()
				}
			}
		})
	}
	writers.Wait()
	// A piece is admitted before it is there: a measure that comes in between lacks it.
	if n := admitted.Load(); n < 6 || n > 6+slots {
		t.Errorf("%d pieces of 10 bytes in room for 6", n)
	}
	if err := r.admit(t.Context(), fsys, request(schemas.FileAppend, "x"), 1); schemas.CodeOf(err) != schemas.Exhausted {
		t.Errorf("one more: %v", err)
	}
}

// TestWhatIsAdmittedWhileItIsMeasuredCounts, whether the measure has it or not.
func TestWhatIsAdmittedWhileItIsMeasuredCounts(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	r := &Room{Files: 10, Bytes: 100, FileSize: 40, now: func() time.Time { return now }}
	fsys := &counted{sizes: map[string]int64{}}
	if err := r.admit(t.Context(), fsys, request(schemas.FileAppend, "x"), 40); err != nil {
		t.Fatal(err)
	}
	key := schemas.Namespace("acct_1", "ws_1")
	fsys.measured = func() { // by a request that still believes the last measure
		if ok, _, _ := r.take(key, amount{bytes: 40}, 2*measuredFor); !ok {
			t.Error("not admitted")
		}
	}
	now = now.Add(measuredFor)
	if err := r.admit(t.Context(), fsys, request(schemas.FileAppend, "y"), 40); err != nil {
		t.Fatal(err)
	}
	fsys.measured = nil
	if ok, known, _ := r.take(key, amount{bytes: 21}, measuredFor); ok || !known {
		t.Errorf("80 bytes are admitted, and 21 more: %v %v", ok, known)
	}
}

// TestMeasuresAreBelievedForAWhile: files are counted each half minute, before a refusal, and after a removal.
func TestMeasuresAreBelievedForAWhile(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	r := &Room{Files: 10, Bytes: 100, FileSize: 40, now: func() time.Time { return now }}
	fsys := &counted{sizes: map[string]int64{"a": 50}}
	step := func(what string, op schemas.FileOp, n, measures int, code schemas.Code) {
		t.Helper()
		if err := r.admit(t.Context(), fsys, request(op, "x"), n); schemas.CodeOf(err) != code || fsys.measures != measures {
			t.Errorf("%s: %v after %d measures, want %q after %d", what, err, fsys.measures, code, measures)
		}
	}
	step("the first", schemas.FileAppend, 10, 1, "")
	now = now.Add(measuredFor - 1)
	step("within half a minute", schemas.FileAppend, 10, 1, "")
	now = now.Add(1)
	step("after it", schemas.FileAppend, 40, 2, "")
	step("above it", schemas.FileAppend, 40, 3, "") // nothing of what was admitted is there
	fsys.sizes["b"] = 50
	step("full", schemas.FileAppend, 40, 4, schemas.Exhausted)
	fsys.sizes = map[string]int64{}
	step("another worker has removed all", schemas.FileAppend, 40, 5, "")
	step("a removal", schemas.FileRemove, 0, 5, "")
	step("after it", schemas.FileAppend, 10, 6, "")
	for n := range mostMeasured + 1 {
		q := request(schemas.FileAppend, "x")
		q.Workspace = schemas.WorkspaceID(fmt.Sprintf("ws_%d", n))
		if err := r.admit(t.Context(), fsys, q, 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.of) > mostMeasured {
		t.Errorf("%d workspaces are held", len(r.of))
	}
}
