package sandboxapi

import (
	"encoding/base64"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Limits of requests. docs/LIMITS.md lists them.
const (
	MaxCode      = 512 << 10 // bytes of the code of one execute
	MaxEnvBytes  = 64 << 10  // bytes of the names and values of a request's env
	MaxKey       = 255       // bytes of an Idempotency-Key
	MaxTransfer  = 3 << 20   // bytes that a write of base64, or one copy, carries in all
	MaxCopyFiles = 100       // files of one copy
	MaxBinary    = 8 << 20   // bytes of a file that read_binary gives
)

// common are the fields that every body may have.
type common struct {
	tenant  schemas.AccountID
	session string
	timeout *int // milliseconds
	env     map[string]string
}

// ExecuteRequest is the body of POST /v1/sandbox/execute.
type ExecuteRequest struct {
	TenantID  schemas.AccountID `json:"tenant_id,omitzero" jsonschema_description:"The key's own account, or left out. The administrator must name one."`
	SessionID string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$" jsonschema_description:"The session, by a name of your choice. It is made when it is first named."`
	TimeoutMS *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000" jsonschema_description:"Of the run, in milliseconds. Default: the sandbox's, 30000 unless its record says another."`
	Env       map[string]string `json:"env,omitzero" jsonschema_description:"Variables of the run."`
	Code      string            `json:"code" jsonschema:"minLength=1,maxLength=524288"`
	Language  string            `json:"language,omitzero" jsonschema:"enum=python,enum=bash,enum=node" jsonschema_description:"Default python. python3, py, sh, nodejs, js and javascript are understood too."`
	Result    bool              `json:"result,omitzero" jsonschema_description:"Of python: run it as a notebook does. The value of the last expression is printed; pictures, tables and pages, of display(…) too, and open figures of Matplotlib are artifacts in outputs/."`
}

// BashRequest is the body of POST /v1/sandbox/bash.
type BashRequest struct {
	TenantID   schemas.AccountID `json:"tenant_id,omitzero"`
	SessionID  string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	TimeoutMS  *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000"`
	Env        map[string]string `json:"env,omitzero"`
	Command    string            `json:"command" jsonschema:"minLength=1,maxLength=524288"`
	CWD        string            `json:"cwd,omitzero" jsonschema:"maxLength=4096" jsonschema_description:"Folder of the workspace to run in. Default: its root."`
	Background bool              `json:"background,omitzero" jsonschema_description:"Run as a background job: the answer is 202 with its id."`
}

// ReadRequest is the body of POST /v1/sandbox/read.
type ReadRequest struct {
	TenantID  schemas.AccountID `json:"tenant_id,omitzero"`
	SessionID string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	TimeoutMS *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000"`
	Env       map[string]string `json:"env,omitzero"`
	Path      string            `json:"path" jsonschema:"minLength=1,maxLength=4096"`
	Offset    *int              `json:"offset,omitzero" jsonschema:"minimum=1" jsonschema_description:"First line, from 1."`
	Limit     *int              `json:"limit,omitzero" jsonschema:"minimum=1" jsonschema_description:"Lines. Default 2000."`
}

// ReadBinaryRequest is the body of POST /v1/sandbox/read_binary.
type ReadBinaryRequest struct {
	TenantID  schemas.AccountID `json:"tenant_id,omitzero"`
	SessionID string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	TimeoutMS *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000"`
	Env       map[string]string `json:"env,omitzero"`
	Path      string            `json:"path" jsonschema:"minLength=1,maxLength=4096"`
}

// WriteRequest is the body of POST /v1/sandbox/write.
type WriteRequest struct {
	TenantID      schemas.AccountID `json:"tenant_id,omitzero"`
	SessionID     string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	TimeoutMS     *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000"`
	Env           map[string]string `json:"env,omitzero"`
	Path          string            `json:"path" jsonschema:"minLength=1,maxLength=4096"`
	Content       *string           `json:"content,omitzero" jsonschema:"maxLength=5242880" jsonschema_description:"Text. Either this or content_base64."`
	ContentBase64 *string           `json:"content_base64,omitzero" jsonschema_description:"Any bytes, at most 3 MiB of them."`
	IfMatch       string            `json:"if_match,omitzero" jsonschema:"maxLength=128" jsonschema_description:"Only if the file's present etag (sha256 of its content in hex) is this."`
}

// GrepRequest is the body of POST /v1/sandbox/grep.
type GrepRequest struct {
	TenantID        schemas.AccountID `json:"tenant_id,omitzero"`
	SessionID       string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	TimeoutMS       *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000"`
	Env             map[string]string `json:"env,omitzero"`
	Pattern         string            `json:"pattern" jsonschema:"minLength=1,maxLength=8192"`
	Path            string            `json:"path,omitzero" jsonschema:"maxLength=4096"`
	Glob            string            `json:"glob,omitzero" jsonschema:"maxLength=8192"`
	Mode            string            `json:"mode,omitzero" jsonschema:"enum=regex,enum=literal" jsonschema_description:"What the pattern is. Default regex."`
	CaseInsensitive bool              `json:"case_insensitive,omitzero"`
	MaxCount        *int              `json:"max_count,omitzero" jsonschema:"minimum=1" jsonschema_description:"Most matches. Default 1000."`
}

// GlobRequest is the body of POST /v1/sandbox/glob.
type GlobRequest struct {
	TenantID  schemas.AccountID `json:"tenant_id,omitzero"`
	SessionID string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	TimeoutMS *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000"`
	Env       map[string]string `json:"env,omitzero"`
	Pattern   string            `json:"pattern" jsonschema:"minLength=1,maxLength=8192"`
	Path      string            `json:"path,omitzero" jsonschema:"maxLength=4096"`
}

// LSRequest is the body of POST /v1/sandbox/ls.
type LSRequest struct {
	TenantID  schemas.AccountID `json:"tenant_id,omitzero"`
	SessionID string            `json:"session_id" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_.-]+$"`
	TimeoutMS *int              `json:"timeout_ms,omitzero" jsonschema:"minimum=1,maximum=600000"`
	Env       map[string]string `json:"env,omitzero"`
	Path      string            `json:"path,omitzero" jsonschema:"maxLength=4096" jsonschema_description:"Folder. Default: the workspace's root."`
	Limit     *int              `json:"limit,omitzero" jsonschema:"minimum=1" jsonschema_description:"Most entries, at most 2000. Default 1000."`
}

// CopyRequest is the body of POST /v1/sandbox/sessions/{tenant}/{session}/copy.
type CopyRequest struct {
	Files     []CopyFile `json:"files" jsonschema:"minItems=1,maxItems=100"`
	Overwrite bool       `json:"overwrite,omitzero" jsonschema_description:"Files that are there are replaced. Else they stay, with an error of code conflict."`
}

// CopyFile is one file of a copy.
type CopyFile struct {
	Path          string `json:"path" jsonschema:"minLength=1,maxLength=4096"`
	ContentBase64 string `json:"content_base64"`
	Mode          string `json:"mode,omitzero" jsonschema:"pattern=^0?[0-7]{3}$" jsonschema_description:"In octal, such as 755. Default 644."`
}

func (q ExecuteRequest) common() common { return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env} }

func (q BashRequest) common() common { return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env} }

func (q ReadRequest) common() common { return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env} }

func (q ReadBinaryRequest) common() common {
	return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env}
}

func (q WriteRequest) common() common { return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env} }

func (q GrepRequest) common() common { return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env} }

func (q LSRequest) common() common { return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env} }

func (q GlobRequest) common() common { return common{q.TenantID, q.SessionID, q.TimeoutMS, q.Env} }

// checkCommon validates the fields that every body may have. Code: invalid.
func checkCommon(c common) error {
	if c.session == "" {
		return schemas.Invalidf("session_id", "is missing: name the session, such as \"main\"")
	}
	if err := schemas.CheckSandboxSession("session_id", c.session); err != nil {
		return err
	}
	if most := int(schemas.MaxTimeout / time.Millisecond); c.timeout != nil && (*c.timeout < 1 || *c.timeout > most) {
		return schemas.Invalidf("timeout_ms", "%d is out of range: 1 to %d", *c.timeout, most)
	}
	return checkEnv(c.env)
}

func checkEnv(env map[string]string) error {
	size := 0
	for name, value := range env {
		if !isVariable(name) {
			return schemas.Invalidf("env", "%q is not the name of a variable: use letters, digits and _, no digit first", schemas.Quotable(name))
		}
		if strings.IndexByte(value, 0) >= 0 {
			return schemas.Invalidf("env."+name, "has a NUL byte")
		}
		size += len(name) + len(value)
	}
	if len(env) > schemas.MaxEnvVars || size > MaxEnvBytes {
		return schemas.Invalidf("env", "has %d variables of %d bytes: the limits are %d and %d", len(env), size, schemas.MaxEnvVars, MaxEnvBytes)
	}
	return nil
}

func isVariable(name string) bool {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	})
}

// checkPath checks that a path is inside the workspace and returns it relative to the workspace's root, which is ".". An empty path is
// invalid unless optional is set: then it is the root. Code: invalid.
func checkPath(field, p string, optional bool) (string, error) {
	switch {
	case p == "" && optional:
		return ".", nil
	case p == "":
		return "", schemas.Invalidf(field, "is missing")
	case len(p) > schemas.MaxPath:
		return "", schemas.Invalidf(field, "is %d bytes long: the limit is %d", len(p), schemas.MaxPath)
	case strings.IndexByte(p, 0) >= 0:
		return "", schemas.Invalidf(field, "has a NUL byte")
	case slices.Contains(strings.Split(p, "/"), ".."):
		return "", schemas.Invalidf(field, "%q: directory traversal not allowed: leave out \"..\"", schemas.Quotable(p))
	}
	if rest, ok := strings.CutPrefix(p, "/"); ok {
		clean := path.Clean("/" + rest)
		if clean == workspaceRoot {
			return ".", nil
		}
		if p, ok = strings.CutPrefix(clean, workspaceRoot+"/"); !ok {
			return "", schemas.Invalidf(field, "%q is outside of the workspace: use a relative path, or one below %s",
				schemas.Quotable(clean), workspaceRoot)
		}
	}
	return path.Clean(p), nil
}

const workspaceRoot = "/workspace"

// checkFile is checkPath for a file: it also rejects the root and paths that end with a slash.
func checkFile(field, p string) (string, error) {
	clean, err := checkPath(field, p, false)
	if err == nil && (clean == "." || strings.HasSuffix(p, "/")) {
		err = schemas.Invalidf(field, "%q is a folder: name a file", schemas.Quotable(p))
	}
	return clean, err
}

// checkText rejects a text that is empty, longer than most bytes, or has a NUL byte. Code: invalid.
func checkText(field, s string, most int) error {
	switch {
	case s == "":
		return schemas.Invalidf(field, "is missing")
	case len(s) > most:
		return schemas.Invalidf(field, "is %d bytes long: the limit is %d; write what is longer to a file first", len(s), most)
	case strings.IndexByte(s, 0) >= 0:
		return schemas.Invalidf(field, "has a NUL byte")
	}
	return nil
}

// content returns the content of a write: text, or, if binary is true, data. Code: invalid.
func (q WriteRequest) content() (text string, data []byte, binary bool, err error) {
	switch {
	case q.Content == nil && q.ContentBase64 == nil:
		return "", nil, false, schemas.Invalidf("content", "is missing: send content, or content_base64")
	case q.Content != nil && q.ContentBase64 != nil:
		return "", nil, false, schemas.Invalidf("content_base64", "cannot be sent together with content: send one of them")
	case q.Content != nil && len(*q.Content) > schemas.MaxContent:
		return "", nil, false, schemas.Invalidf("content", "is %d bytes long: the limit is %d", len(*q.Content), schemas.MaxContent)
	case q.Content != nil:
		return *q.Content, nil, false, nil
	}
	data, err = decodeBase64("content_base64", *q.ContentBase64)
	if err == nil && len(data) > MaxTransfer {
		err = schemas.Invalidf("content_base64", "is %d bytes: the limit is %d; upload what is larger to /v1/workspaces/{id}/files",
			len(data), MaxTransfer)
	}
	return "", data, true, err
}

func decodeBase64(field, s string) ([]byte, error) {
	data, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, schemas.Invalidf(field, "is not base64: use the standard alphabet with padding, in one line")
	}
	return data, nil
}

// file is a file to store.
type file struct {
	path    string
	data    []byte
	mode    string // in octal
	replace bool
	ifMatch string
}

// files returns the files of a copy; bad has the errors of invalid ones, by their index in the request. The error is of the request as a
// whole. Code: invalid.
func (q CopyRequest) files() (list []file, bad map[int]*schemas.Error, err error) {
	switch {
	case len(q.Files) == 0:
		return nil, nil, schemas.Invalidf("files", "is empty: name a file")
	case len(q.Files) > MaxCopyFiles:
		return nil, nil, schemas.Invalidf("files", "has %d files: the limit is %d; send them in several copies", len(q.Files), MaxCopyFiles)
	}
	size := 0
	list, bad = make([]file, len(q.Files)), map[int]*schemas.Error{}
	for i, f := range q.Files {
		field := "files." + strconv.Itoa(i)
		var err error
		list[i] = file{mode: "644", replace: q.Overwrite}
		if list[i].path, err = checkFile(field+".path", f.Path); err == nil {
			list[i].data, err = decodeBase64(field+".content_base64", f.ContentBase64)
		}
		if mode := strings.TrimPrefix(f.Mode, "0"); err == nil && f.Mode != "" {
			if len(mode) != 3 || strings.Trim(mode, "01234567") != "" {
				err = schemas.Invalidf(field+".mode", "%q is not a mode: use three octal digits, such as 755", schemas.Quotable(f.Mode))
			}
			list[i].mode = mode
		}
		if err != nil {
			bad[i] = schemas.Public(err)
		}
		size += len(list[i].data)
	}
	if size > MaxTransfer {
		return nil, nil, schemas.Invalidf("files", "has %d bytes in all: the limit is %d; send them in several copies", size, MaxTransfer)
	}
	return list, bad, nil
}

// checkKey returns the Idempotency-Key of a request; empty if it has none. Code: invalid.
func checkKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(values) > 1 || key == "" || len(key) > MaxKey || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", schemas.Invalidf("Idempotency-Key", "is one text of 1 to %d printable ASCII characters", MaxKey)
	}
	return key, nil
}
