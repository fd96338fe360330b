package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"iter"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/sandjet/sandjet"
	top    = "../.."
)

// pkg is what `go list -json` prints of a package; Path is relative to the module.
type pkg struct {
	Path           string `json:"-"`
	Dir            string
	Name           string
	Doc            string
	ImportPath     string
	GoFiles        []string
	TestGoFiles    []string
	XTestGoFiles   []string
	IgnoredGoFiles []string
	Imports        []string
	TestImports    []string
	XTestImports   []string
}

var tree = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-e",
		"-json=Dir,ImportPath,Name,Doc,GoFiles,TestGoFiles,XTestGoFiles,IgnoredGoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		p.Path = strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		all = append(all, p)
	}
})

func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("go list found %d packages", len(all))
	}
	return all
}

func (p pkg) testImports() []string { return slices.Concat(p.TestImports, p.XTestImports) }

func (p pkg) files(name []string) []string {
	out := make([]string, 0, len(name))
	for _, n := range name {
		out = append(out, filepath.Join(p.Dir, n))
	}
	return out
}

// allFiles are the package's Go files, tests included, those of other systems too.
func (p pkg) allFiles() []string {
	return p.files(slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles, p.IgnoredGoFiles))
}

// sources has the positions in all files that parse returned.
var sources = token.NewFileSet()

// parsed are the files of the tree, each read once for all tests: name to func() (*ast.File, error).
var parsed sync.Map

// parse returns the files with their names. One that cannot be read fails the test.
func parse(t *testing.T, names []string) iter.Seq2[string, *ast.File] {
	t.Helper()
	return func(yield func(string, *ast.File) bool) {
		for _, name := range names {
			read, _ := parsed.LoadOrStore(name, sync.OnceValues(func() (*ast.File, error) {
				return parser.ParseFile(sources, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			}))
			f, err := read.(func() (*ast.File, error))()
			if err != nil {
				t.Error(err)
			} else if !yield(name, f) {
				return
			}
		}
	}
}

// below reports whether path is folder or something in it.
func below(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// rowOf returns the key in floors for a package: its path or the nearest folder above it. It is false if there is none.
func rowOf(path string) (string, bool) {
	for at := path; ; {
		if _, ok := floors[at]; ok {
			return at, true
		}
		cut := strings.LastIndexByte(at, '/')
		if cut < 0 {
			return "", false
		}
		at = at[:cut]
	}
}
