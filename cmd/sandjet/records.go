package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// document is a record that the commands of the collections handle.
type document interface {
	schemas.SandboxDocument | schemas.WorkspaceDocument | schemas.ModelDocument | schemas.AgentDocument
}

// recordArg names a record by its id or name.
type recordArg struct {
	gatewayTarget

	Record string `arg:"" name:"id" help:"Id or name."`
}

// kind is a kind of records of an account, with what its commands need.
type kind[T document] struct {
	noun, prefix string // what errors call it; prefix of its ids
	all          func(*client.Client) client.Records[T]
	names        func(T) (id, name string)
}

// says returns the request body that a command's flags describe.
type says func(context.Context, *client.Client, io.Reader) (body, error)

func (k kind[T]) show(ctx context.Context, t terminal, r recordArg) error {
	cl, id, err := k.find(ctx, t, r)
	if err != nil {
		return err
	}
	v, err := k.all(cl).Get(ctx, id)
	return printNamed(ctx, t, cl, v, err)
}

func (k kind[T]) create(ctx context.Context, t terminal, target gatewayTarget, name string, f says) error {
	cl, err := target.dial(ctx, t)
	if err != nil {
		return err
	}
	b, err := f(ctx, cl, t.in)
	if err != nil {
		return err
	}
	put(b, name, "name")
	v, err := k.all(cl).Add(ctx, b)
	return printNamed(ctx, t, cl, v, err)
}

func (k kind[T]) set(ctx context.Context, t terminal, r recordArg, name string, f says) error {
	cl, id, err := k.find(ctx, t, r)
	if err != nil {
		return err
	}
	b, err := f(ctx, cl, t.in)
	if err != nil {
		return err
	}
	put(b, name, "name")
	v, err := k.all(cl).Patch(ctx, id, b)
	return printNamed(ctx, t, cl, v, err)
}

func (k kind[T]) remove(ctx context.Context, t terminal, r recordArg) error {
	cl, id, err := k.find(ctx, t, r)
	if err != nil {
		return err
	}
	return printRemoved(t, id, k.all(cl).Remove(ctx, id))
}

// find resolves the argument to the id of a record.
func (k kind[T]) find(ctx context.Context, t terminal, r recordArg) (*client.Client, string, error) {
	cl, err := r.dial(ctx, t)
	if err != nil {
		return nil, "", err
	}
	id, err := k.id(ctx, cl, r.Record)
	return cl, id, err
}

// id returns the id of the record with this id or name. Code: not_found.
func (k kind[T]) id(ctx context.Context, cl *client.Client, meant string) (string, error) {
	if strings.HasPrefix(meant, k.prefix) {
		return meant, nil
	}
	list, err := k.all(cl).List(ctx)
	if err != nil {
		return "", err
	}
	var have []string
	for _, v := range list {
		id, name := k.names(v)
		if name == meant {
			return id, nil
		}
		have = append(have, name)
	}
	there := "none exists yet"
	if len(have) > 0 {
		there = "use " + orList(have)
	}
	return "", schemas.OpErrorf(schemas.NotFound, k.noun, "there is no %s %q: %s", k.noun, schemas.Quotable(meant), printable(there))
}

// body is the body of a request that creates or changes a record.
type body map[string]any

// put sets the field at a path, unless value is zero.
func put[T comparable](b body, value T, path ...string) {
	if value == *new(T) {
		return
	}
	b.at(path[:len(path)-1]...)[path[len(path)-1]] = value
}

// putList sets the list at a path, unless it is empty; a single empty entry means the empty list.
func putList(b body, values []string, path ...string) {
	if len(values) == 0 {
		return
	}
	if len(values) == 1 && values[0] == "" {
		values = []string{}
	}
	b.at(path[:len(path)-1]...)[path[len(path)-1]] = values
}

// at returns the object at a path, and creates it if it is missing.
func (b body) at(path ...string) map[string]any {
	m := map[string]any(b)
	for _, p := range path {
		below, ok := m[p].(map[string]any)
		if !ok {
			below = map[string]any{}
			m[p] = below
		}
		m = below
	}
	return m
}

// fileFlag is a file with a whole record, or with the fields to change.
type fileFlag struct {
	File        string  `placeholder:"FILE" use:"" help:"YAML or JSON with name, description and config as in the HTTP API; - reads stdin. Flags override it."`
	Description *string `placeholder:"TEXT" use:"" help:"Free-text description."`
}

// read returns a body with the content of the file. Code: invalid.
func (f fileFlag) read(stdin io.Reader) (body, error) {
	b := body{}
	if f.File != "" {
		in := stdin
		if f.File != "-" {
			file, err := os.Open(f.File) // the user's own
			if err != nil {
				return nil, schemas.Invalidf("file", "cannot be read: %v", err)
			}
			defer file.Close() //nolint:errcheck // only read
			in = file
		}
		text, err := io.ReadAll(io.LimitReader(in, schemas.MaxConfig+1))
		if err != nil {
			return nil, schemas.Invalidf("file", "cannot be read: %v", err)
		}
		if b, err = decodeRecord(text); err != nil {
			return nil, err
		}
	}
	if f.Description != nil {
		b["description"] = *f.Description
	}
	return b, nil
}

// decodeRecord decodes YAML, which includes JSON. The gateway validates the fields. Code: invalid.
func decodeRecord(text []byte) (body, error) {
	if len(text) > schemas.MaxConfig {
		return nil, schemas.Invalidf("file", "is larger than %d bytes", schemas.MaxConfig)
	}
	var b body
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&b); err != nil || b == nil {
		return nil, schemas.Invalidf("file", "is not a YAML mapping: %v", err)
	}
	return b, nil
}

// printNamed is printRecord that adds, as comments, the names of records which this one refers to by id.
func printNamed(ctx context.Context, t terminal, cl *client.Client, v any, err error) error {
	if err != nil || t.json || t.names {
		return printRecord(t, v, err)
	}
	b, err := recordYAML(v)
	if err != nil {
		return err
	}
	file, err := parser.ParseBytes(b, 0)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	var r references
	for _, d := range file.Docs {
		ast.Walk(&r, d.Body)
	}
	if len(r) == 0 {
		_, err = t.out.Write(b)
		return wrapOutput(err)
	}
	names := namesOf(ctx, t, cl)
	for _, n := range r {
		if name := names[n.Value]; name != "" {
			text := " " + printable(strings.ReplaceAll(name, "\n", " "))
			if err := n.SetComment(ast.CommentGroup([]*token.Token{token.New(text, text, n.GetToken().Position)})); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
	}
	_, err = fmt.Fprintln(t.out, strings.TrimRight(file.String(), "\n"))
	return wrapOutput(err)
}

// references collects the ids of other records in a YAML document.
type references []*ast.StringNode

// Visit collects values of a mapping that are ids, except for the record's own.
func (r *references) Visit(n ast.Node) ast.Visitor {
	pair, ok := n.(*ast.MappingValueNode)
	if !ok || pair.Key.String() == "id" {
		return r
	}
	if s, ok := pair.Value.(*ast.StringNode); ok &&
		(strings.HasPrefix(s.Value, schemas.SandboxPrefix) || strings.HasPrefix(s.Value, schemas.WorkspacePrefix)) {
		*r = append(*r, s)
	}
	return r
}

// printRecord prints a record: as YAML, which --file accepts except for the fields that the gateway sets, as JSON, or its id alone. If err
// is not nil it returns that.
func printRecord(t terminal, v any, err error) error {
	if err != nil {
		return err
	}
	switch {
	case t.json:
		return printJSON(t.out, v)
	case t.names:
		return printID(t, v)
	}
	b, err := recordYAML(v)
	if err != nil {
		return err
	}
	_, err = t.out.Write(b)
	return wrapOutput(err)
}

// printID prints the id of a record.
func printID(t terminal, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	var record struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(b, &record); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = fmt.Fprintln(t.out, printable(record.ID))
	return wrapOutput(err)
}

func recordYAML(v any) ([]byte, error) {
	b, err := yaml.MarshalWithOptions(v, yaml.UseJSONMarshaler())
	if err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}
	return b, nil
}

func printRemoved(t terminal, id string, err error) error {
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]any{"removed": id})
	}
	return say(t, "Removed %s", id)
}
