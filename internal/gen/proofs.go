package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// promised are the documents whose sections tests prove.
var promised = []string{"GUARANTEES.md", "LIMITS.md"} //nolint:gochecknoglobals // a setting

// tag precedes the anchor of a section's heading in the comment of each test that proves the section.
const tag = "//guarantee:"

// proofs returns the list of the tests with each section's tag. It fails for a tag without a section.
func proofs(root string) ([]byte, error) {
	tagged, err := taggedTests(root)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("# Proofs\n\nThe tests that prove each promise, from their tags `" + tag + "…`; `make gen` writes this page.\n")
	for _, doc := range promised {
		text, err := os.ReadFile(filepath.Join(root, "docs", doc))
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		for _, m := range heading.FindAllSubmatch(text, -1) {
			title := string(m[1])
			at := anchor(title)
			if len(tagged[at]) == 0 {
				continue
			}
			fmt.Fprintf(&out, "\n## [%s](%s#%s)\n\n", title, doc, at)
			for _, pkg := range slices.Sorted(maps.Keys(tagged[at])) {
				names := tagged[at][pkg]
				slices.Sort(names)
				fmt.Fprintf(&out, "- `%s`: %s\n", pkg, strings.Join(slices.Compact(names), ", "))
			}
			delete(tagged, at)
		}
	}
	for at, of := range tagged {
		return nil, fmt.Errorf("tests of %s have the tag %q, and %s have no such heading", strings.Join(slices.Sorted(maps.Keys(of)), ", "), at,
			strings.Join(promised, " or "))
	}
	return out.Bytes(), nil
}

var (
	heading     = regexp.MustCompile(`(?m)^###? (.*)$`)
	punctuation = regexp.MustCompile(`[^\pL\pN_ -]`)
)

// anchor returns the fragment of links to a heading.
func anchor(title string) string {
	return strings.ReplaceAll(punctuation.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// taggedTests returns the names of the module's tagged tests, by anchor and by the folder of their package.
func taggedTests(root string) (map[string]map[string][]string, error) {
	found := map[string]map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // of this module
		if err != nil || !bytes.Contains(text, []byte("\n"+tag)) {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return testsOf(path, text, func(name, at string) {
			if found[at] == nil {
				found[at] = map[string][]string{}
			}
			folder = filepath.ToSlash(folder)
			found[at][folder] = append(found[at][folder], name)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("find the tests: %w", err)
	}
	return found, nil
}

// testsOf calls each for every tag of a file's tests. It fails for a tag that is not in the comment of a test.
func testsOf(path string, text []byte, each func(name, at string)) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	n := 0
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Doc == nil || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
			continue
		}
		for _, c := range f.Doc.List {
			if at, ok := strings.CutPrefix(c.Text, tag); ok {
				each(f.Name.Name, at)
				n++
			}
		}
	}
	if all := bytes.Count(text, []byte("\n"+tag)); all != n {
		return fmt.Errorf("%s: %d of %d tags are not in the comment of a test", path, all-n, all)
	}
	return nil
}
