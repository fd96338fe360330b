package sandboxapi

import (
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// Execute serves POST /v1/sandbox/execute: it runs code.
func (a *API) Execute(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q ExecuteRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	if err := checkText("code", q.Code, MaxCode); err != nil {
		return err
	}
	command, err := program(q)
	if err != nil {
		return err
	}
	var names []string
	if q.Result { // so that its pictures are artifacts also where the files are reached by runs
		names = []string{schemas.OutputsFolder + "/**"}
	}
	return a.runCommand(w, r, c, "execute", q.common(), schemas.BashInput{Command: command}, names...)
}

// Bash serves POST /v1/sandbox/bash: it runs a command.
func (a *API) Bash(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q BashRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	if err := checkText("command", q.Command, MaxCode); err != nil {
		return err
	}
	dir, err := checkPath("cwd", q.CWD, true)
	if err != nil {
		return err
	}
	return a.runCommand(w, r, c, "bash", q.common(), schemas.BashInput{Command: commandOf(q, dir), Background: q.Background})
}

func (a *API) runCommand(w http.ResponseWriter, r *http.Request, c Caller, tool string, q common, in schemas.BashInput,
	artifacts ...string) error {
	x, done, err := a.begin(w, r, c, tool, q)
	if err != nil {
		return answered(err)
	}
	defer done()
	x.artifacts = artifacts
	result, call, err := x.call(r.Context(), schemas.ToolBash, in, "", 0)
	outcome, err := x.ran(w, result, call, err)
	x.end(outcome, err)
	return err
}

// ReadAnswer is the response to read: a page of a text file, or a small binary file.
type ReadAnswer struct {
	Content    string `json:"content"`
	Encoding   string `json:"encoding"`    // utf-8, or base64 of a binary file
	StartLine  int64  `json:"start_line"`  // from 1; 0: there is none
	EndLine    int64  `json:"end_line"`    // likewise
	TotalLines *int64 `json:"total_lines"` // null: not counted
	NextOffset *int64 `json:"next_offset"` // null: this was the end
	ETag       string `json:"etag,omitzero"`
}

// Read serves POST /v1/sandbox/read: it reads lines of a file.
func (a *API) Read(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q ReadRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	name, err := checkFile("path", q.Path)
	if err == nil && q.Offset != nil && *q.Offset < 1 {
		err = schemas.Invalidf("offset", "%d is out of range: the first line is 1", *q.Offset)
	}
	if err == nil && q.Limit != nil && *q.Limit < 1 {
		err = schemas.Invalidf("limit", "%d is out of range: at least 1", *q.Limit)
	}
	if err != nil {
		return err
	}
	var answer ReadAnswer
	in := schemas.ReadInput{FilePath: workspaceRoot + "/" + name, Offset: q.Offset, Limit: q.Limit, Base: new(1)}
	return a.lookUp(w, r, c, "read", q.common(), schemas.ToolRead, in, schemas.DialectDeepAgents, &answer, nil)
}

// lookUp makes one call of a reading tool and writes the response: the structured result, decoded into data, or what change returns if it
// is not nil.
func (a *API) lookUp(w http.ResponseWriter, r *http.Request, c Caller, name string, q common, tool schemas.Tool, in any, d schemas.Dialect,
	data any, change func(x *execution) (any, error),
) error {
	x, done, err := a.begin(w, r, c, name, q)
	if err != nil {
		return answered(err)
	}
	defer done()
	shown := data
	err = func() error {
		result, err := x.finished(x.call(r.Context(), tool, in, d, 0))
		if err == nil {
			err = dataOf(result, data)
		}
		if err == nil && change != nil {
			shown, err = change(x)
		}
		return err
	}()
	x.end("ok", err)
	if err != nil {
		return aboutPath(err)
	}
	web.WriteJSON(w, http.StatusOK, shown)
	return nil
}

// aboutPath sets the field of a tool's error to path, if it has none.
func aboutPath(err error) error {
	e := schemas.Public(err)
	if e.Field == "" && slices.Contains([]schemas.Code{schemas.NotFound, schemas.Invalid, schemas.Conflict}, e.Code) {
		return web.Rename(err, "path")
	}
	return err
}

// dataOf decodes the structured data of a tool's result.
func dataOf(r schemas.Result, into any) error {
	b, err := schemas.EncodeJSON(r.Output.Data)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return schemas.Wrap(schemas.Internal, "sandbox", "the result has another structure", err)
	}
	return nil
}

// GrepAnswer is the response to grep.
type GrepAnswer struct {
	Matches   []GrepMatch `json:"matches"`
	Truncated bool        `json:"truncated"`
}

// GrepMatch is a matching line.
type GrepMatch struct {
	Path string `json:"path"` // relative to the workspace
	Line int    `json:"line"` // from 1
	Text string `json:"text"`
}

// Grep serves POST /v1/sandbox/grep: it searches in files.
func (a *API) Grep(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q GrepRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	under, err := checkPath("path", q.Path, true)
	if err == nil {
		err = checkPattern("pattern", q.Pattern)
	}
	if err == nil && q.Glob != "" {
		err = checkPattern("glob", q.Glob)
	}
	switch {
	case err != nil:
		return err
	case q.Mode != "" && q.Mode != "regex" && q.Mode != "literal":
		return schemas.Invalidf("mode", "%q is unknown: use regex or literal", schemas.Quotable(q.Mode))
	case q.MaxCount != nil && *q.MaxCount < 1:
		return schemas.Invalidf("max_count", "%d is out of range: at least 1", *q.MaxCount)
	}
	in := schemas.GrepInput{
		Pattern: q.Pattern, Path: under, Glob: q.Glob, OutputMode: schemas.GrepContent, CaseInsensitive: q.CaseInsensitive,
		Fixed: new(q.Mode == "literal"), HeadLimit: q.MaxCount, LineNumbers: true,
	}
	answer := GrepAnswer{Matches: []GrepMatch{}}
	return a.lookUp(w, r, c, "grep", q.common(), schemas.ToolGrep, in, schemas.DialectClaude, &answer, nil)
}

// checkPattern checks a pattern; a glob must not leave the workspace. Code: invalid.
func checkPattern(field, p string) error {
	if err := checkText(field, p, schemas.MaxPattern); err != nil {
		return err
	}
	if field != "glob" {
		return nil
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return schemas.Invalidf(field, "%q: directory traversal not allowed: leave out \"..\"", schemas.Quotable(p))
		}
	}
	return nil
}

// GlobAnswer is the response to glob.
type GlobAnswer struct {
	Paths     []GlobPath `json:"paths"`
	Truncated bool       `json:"truncated"`
}

// GlobPath is a file or folder. If it was removed since it was found, it has no size and no time.
type GlobPath struct {
	Path     string     `json:"path"` // relative to the workspace
	Size     *int64     `json:"size"`
	Modified *time.Time `json:"modified_at"`
	IsDir    bool       `json:"is_dir"`
}

// Glob serves POST /v1/sandbox/glob: it searches for file names.
func (a *API) Glob(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q GlobRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	under, err := checkPath("path", q.Path, true)
	if err == nil {
		err = checkPattern("pattern", q.Pattern)
	}
	if err == nil {
		err = checkPattern("glob", q.Pattern)
	}
	if err == nil && strings.HasPrefix(q.Pattern, "/") {
		err = schemas.Invalidf("pattern", "%q is absolute: search below the workspace, and name a folder with path", schemas.Quotable(q.Pattern))
	}
	if err != nil {
		return web.Rename(err, strings.Replace(schemas.Public(err).Field, "glob", "pattern", 1))
	}
	in := schemas.GlobInput{Pattern: q.Pattern, Path: under, IncludeDirs: new(true), Absolute: new(true)}
	var found struct {
		Paths     []string `json:"paths"`
		Truncated bool     `json:"truncated"`
	}
	return a.lookUp(w, r, c, "glob", q.common(), schemas.ToolGlob, in, schemas.DialectClaude, &found, func(x *execution) (any, error) {
		answer := GlobAnswer{Paths: []GlobPath{}, Truncated: found.Truncated}
		for i, p := range found.Paths {
			found.Paths[i] = strings.TrimPrefix(strings.TrimPrefix(p, workspaceRoot), "/")
		}
		if len(found.Paths) == 0 {
			return answer, nil
		}
		result, err := x.finished(x.bash(r.Context(), statAll(found.Paths), 0))
		if err != nil {
			return nil, err
		}
		answer.Paths = described(result.Output.Stdout, found.Paths)
		return answer, nil
	})
}

// LSAnswer is the response to ls.
type LSAnswer struct {
	Entries   []LSPath `json:"entries"` // in the order of their names' bytes
	Total     int64    `json:"total"`   // entries of the folder
	Truncated bool     `json:"truncated"`
}

// LSPath is one entry of a folder.
type LSPath struct {
	Path     string           `json:"path"` // relative to the workspace
	Type     schemas.FileType `json:"type"`
	Size     *int64           `json:"size,omitzero"` // bytes of a file
	Modified *time.Time       `json:"modified_at,omitzero"`
}

// LS serves POST /v1/sandbox/ls: it lists one folder.
func (a *API) LS(w http.ResponseWriter, r *http.Request, c Caller) error {
	var q LSRequest
	if err := body(w, r, &q); err != nil {
		return err
	}
	folder, err := checkPath("path", q.Path, true)
	if err != nil {
		return err
	}
	if q.Limit != nil && *q.Limit < 1 {
		return schemas.Invalidf("limit", "%d is out of range: at least 1", *q.Limit)
	}
	answer := LSAnswer{Entries: []LSPath{}}
	in := schemas.LSInput{Path: folder, Limit: q.Limit}
	return a.lookUp(w, r, c, "ls", q.common(), schemas.ToolLS, in, schemas.DialectClaude, &answer, func(*execution) (any, error) {
		for i := range answer.Entries {
			answer.Entries[i].Path = path.Join(folder, answer.Entries[i].Path)
		}
		return answer, nil
	})
}

// described parses the output of [statAll] for paths. Names may contain line breaks, so each is matched as a whole.
func described(out string, paths []string) []GlobPath {
	list := make([]GlobPath, len(paths))
	for i, p := range paths {
		list[i].Path = p
		parts := strings.SplitN(out, "|", 4)
		if len(parts) < 4 {
			continue
		}
		rest, ok := strings.CutPrefix(parts[3], "./"+p+"\n")
		size, err := strconv.ParseInt(parts[0], 10, 64)
		seconds, err2 := strconv.ParseInt(parts[1], 10, 64)
		if !ok || err != nil || err2 != nil {
			continue // it has vanished: the line is that of another
		}
		at := time.Unix(seconds, 0).UTC()
		list[i].Size, list[i].Modified, list[i].IsDir = &size, &at, parts[2] == "directory"
		out = rest
	}
	return list
}
