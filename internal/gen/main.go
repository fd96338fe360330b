// Command gen writes the documents that are derived from the code: a JSON Schema (2020-12) of each message and record, from the Go types
// in schemas; an AsyncAPI document, from the topology in streams; the schemas of the OpenAPI document, from the types of requests and
// answers; and the list of the tests that prove each promise.
//
// go run ./internal/gen writes them, and go run ./internal/gen -check fails if a file differs from what would be written.
//
// It is run in the root of the module. A second run changes nothing.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a file is missing, differs or should not be there")
	flag.Parse()
	if err := run(".", *check); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes or checks the documents of the module at root.
func run(root string, check bool) error {
	documents, err := Documents(root)
	if err != nil {
		return err
	}
	if check {
		return compare(root, documents)
	}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return fmt.Errorf("make the folder: %w", err)
		}
		if err := os.WriteFile(file, documents[name], 0o644); err != nil { //nolint:gosec // part of the source tree
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// compare returns an error for every file that differs from what would be written.
func compare(root string, documents map[string][]byte) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		switch have, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name))); {
		case errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("%s is missing", name))
		case err != nil:
			errs = append(errs, err)
		case !bytes.Equal(have, documents[name]):
			errs = append(errs, fmt.Errorf("%s is not what the code says", name))
		}
	}
	there, err := filepath.Glob(filepath.Join(root, "schemas", "json", "*"))
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, file := range there {
		if name := "schemas/json/" + filepath.Base(file); documents[name] == nil {
			errs = append(errs, fmt.Errorf("%s belongs to no Go type", name))
		}
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("run `make gen` and commit the difference"))
	}
	return errors.Join(errs...)
}
