package e2b

import (
	"encoding/binary"
	"encoding/json"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// Bodies are read as the wire's own servers do: members that are not known are left alone, since clients of later versions send more.
// What changes what the client gets is refused by name.

// decode decodes one JSON value; unknown members are ignored. Code: invalid.
func decode(body []byte, v any) error {
	if !utf8.Valid(body) {
		return schemas.Invalidf("", "the body is not UTF-8")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return schemas.Invalidf("", "the body is not what is expected: %s", schemas.Quotable(err.Error()))
	}
	return nil
}

const (
	defaultLife = 300 * time.Second // what clients have by default, too
	maxLife     = 24 * time.Hour
	minLife     = time.Second
)

func lifeOf(seconds *int64) (time.Duration, error) {
	if seconds == nil {
		return defaultLife, nil
	}
	if *seconds < int64(minLife/time.Second) || *seconds > int64(maxLife/time.Second) {
		return 0, schemas.Invalidf("timeout", "%d is out of range: 1 to %d seconds", *seconds, int(maxLife.Seconds()))
	}
	return time.Duration(*seconds) * time.Second, nil
}

// decodeLifetime decodes a body that has only a timeout, or is empty. Code: invalid.
func decodeLifetime(body []byte) (time.Duration, error) {
	var in struct {
		Timeout *int64 `json:"timeout"`
	}
	if len(body) > 0 {
		if err := decode(body, &in); err != nil {
			return 0, err
		}
	}
	return lifeOf(in.Timeout)
}

// creation is a parsed request for a new sandbox.
type creation struct {
	Template   string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	Env        map[string]string `json:"envVars"`
	AutoPause  bool              `json:"autoPause"`
	AutoResume struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Internet *bool           `json:"allow_internet_access"`
	Network  json.RawMessage `json:"network"`
	MCP      json.RawMessage `json:"mcp"`
	IAM      json.RawMessage `json:"iam"`
	Mounts   json.RawMessage `json:"volumeMounts"`
}

// templates returns the template names that are accepted. They all mean the same sandbox.
func templates() []string { return []string{"base", "code-interpreter-v1"} }

// decodeCreate decodes a request for a new sandbox; network is the one that all sandboxes have. Codes: invalid, not_found (the template),
// unsupported.
func decodeCreate(body []byte, network schemas.NetworkMode) (lease schemas.SandboxLease, life time.Duration, err error) {
	var in creation
	if err := decode(body, &in); err != nil {
		return lease, 0, err
	}
	given := func(m json.RawMessage) bool {
		return len(m) > 0 && !slices.Contains([]string{"null", "{}", "[]"}, string(m))
	}
	switch {
	case in.Template == "":
		return lease, 0, schemas.Invalidf("templateID", "is missing: use base")
	case !slices.Contains(templates(), in.Template):
		return lease, 0, &schemas.Error{Code: schemas.NotFound, Field: "templateID", Message: "there is no template " +
			schemas.Quotable(in.Template) + ": use base, which is the sandbox that the operator has set up"}
	case in.AutoPause || in.AutoResume.Enabled:
		return lease, 0, unsupported("autoPause: pausing a sandbox is not served")
	case given(in.Network):
		return lease, 0, unsupported("network: rules of one sandbox are not served")
	case in.Internet != nil && !*in.Internet && network != schemas.DenyAll:
		return lease, 0, unsupported("allow_internet_access: a sandbox without the network that all have is not served")
	case given(in.MCP):
		return lease, 0, unsupported("mcp: a gateway in the sandbox is not served")
	case given(in.IAM):
		return lease, 0, unsupported("iam: tokens for workloads are not served")
	case given(in.Mounts):
		return lease, 0, unsupported("volumeMounts: volumes are not served")
	}
	if err := checkEnv("envVars", in.Env); err != nil {
		return lease, 0, err
	}
	for k, v := range in.Metadata {
		if k == "" || strings.ContainsRune(k, 0) || strings.ContainsRune(v, 0) {
			return lease, 0, schemas.Invalidf("metadata", "has an empty name, or a NUL")
		}
	}
	lease = schemas.SandboxLease{Template: in.Template, Metadata: in.Metadata, Env: in.Env}
	if n := lease.Bytes(); n > schemas.MaxSandboxLease {
		return lease, 0, schemas.Invalidf("metadata", "has with envVars %d bytes of names and values: at most %d", n, schemas.MaxSandboxLease)
	}
	life, err = lifeOf(in.Timeout)
	return lease, life, err
}

// checkEnv checks the names and values of variables. Code: invalid.
func checkEnv(field string, env map[string]string) error {
	for name, value := range env {
		bad := name == "" || name[0] >= '0' && name[0] <= '9'
		for _, c := range name {
			bad = bad || c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
		}
		if bad {
			return schemas.Invalidf(field, "%q is not a name of a variable: letters, digits and _", schemas.Quotable(name))
		}
		if strings.ContainsRune(value, 0) {
			return schemas.Invalidf(field, "the value of %s has a NUL", schemas.Quotable(name))
		}
	}
	return nil
}

// listQuery is the parsed query of a list.
type listQuery struct {
	metadata  map[string]string
	running   bool
	template  string
	after     time.Time
	ascending bool
	limit     int
	token     *schemas.SandboxSession // the last of the page before: its id and when it began
}

const maxPage = 100

// decodeList decodes the query of a list. Code: invalid.
func decodeList(raw string) (q listQuery, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, schemas.Invalidf("", "the query cannot be read")
	}
	q.limit = maxPage
	if v := values.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxPage {
			return q, schemas.Invalidf("limit", "is not a number of 1 to %d", maxPage)
		}
		q.limit = n
	}
	states := strings.Split(strings.Join(values["state"], ","), ",")
	q.running = !values.Has("state") || slices.Contains(states, "running")
	if q.template = values.Get("template"); strings.ContainsRune(q.template, 0) {
		return q, schemas.Invalidf("template", "has a NUL")
	}
	q.ascending = values.Get("order") == "asc"
	if v := values.Get("startedAfter"); v != "" {
		if q.after, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return q, schemas.Invalidf("startedAfter", "is not a time, such as 2026-01-02T03:04:05Z")
		}
	}
	if v := values.Get("nextToken"); v != "" {
		began, id, _ := strings.Cut(v, "_")
		at, err := time.Parse(time.RFC3339Nano, began)
		if err != nil || id == "" {
			return q, schemas.Invalidf("nextToken", "is what X-Next-Token of the page before said")
		}
		q.token = &schemas.SandboxSession{ID: id, Created: at}
	}
	pairs, err := url.ParseQuery(values.Get("metadata")) // names and values are escaped once more
	if err != nil {
		return q, schemas.Invalidf("metadata", "cannot be read: name=value&…, escaped")
	}
	q.metadata = map[string]string{}
	for k, v := range pairs {
		name, err := url.QueryUnescape(k)
		value, err2 := url.QueryUnescape(v[0])
		if err != nil || err2 != nil {
			return q, schemas.Invalidf("metadata", "cannot be read: name=value&…, escaped")
		}
		q.metadata[name] = value
	}
	return q, nil
}

// The frames of Connect's streams: a byte of flags, the length in four bytes, the message.
const (
	frameHead  = 5
	flagEnd    = 2 // the last frame: how it ended
	streamType = "application/connect+json"
)

// readFrame returns the one message of a request for a stream, without its frame. Code: invalid.
func readFrame(body []byte) ([]byte, error) {
	switch {
	case len(body) < frameHead:
		return nil, schemas.Invalidf("", "the body is shorter than the head of a message, which has %d bytes", frameHead)
	case body[0] != 0:
		return nil, schemas.Invalidf("", "the message is compressed, or has flags that are not known: send it plain")
	case int64(binary.BigEndian.Uint32(body[1:])) != int64(len(body)-frameHead):
		return nil, schemas.Invalidf("", "the message is not as long as it says")
	}
	return body[frameHead:], nil
}

// frame encodes a message of a stream as a frame.
func frame(flags byte, v any) []byte {
	text, err := schemas.EncodeJSON(v)
	if err != nil { // a type of ours that JSON cannot hold: a defect
		text = []byte("{}")
	}
	b := make([]byte, frameHead, frameHead+len(text))
	b[0] = flags
	binary.BigEndian.PutUint32(b[1:], uint32(len(text)))
	return append(b, text...)
}

// lastFrame encodes the frame that ends a stream; f is nil if it ended without a failure.
func lastFrame(f *failure) []byte {
	return frame(flagEnd, struct {
		Error *failure `json:"error,omitempty"`
	}{f})
}

// home is where clients think that files are when they give no folder; workspace is where they are.
const (
	home      = "/home/user"
	workspace = "/workspace"
)

// inside returns a client's path relative to the workspace. Codes: invalid, unsupported (it is elsewhere in the sandbox).
func inside(field, name string) (string, error) {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) || len(name) > schemas.MaxFilePath {
		return "", schemas.Invalidf(field, "is UTF-8 of at most %d bytes without NUL", schemas.MaxFilePath)
	}
	p := path.Clean(name)
	if path.IsAbs(p) {
		root, ok := home, false
		for _, root = range []string{home, workspace} {
			if p == root || strings.HasPrefix(p, root+"/") {
				ok = true
				break
			}
		}
		if !ok {
			return "", unsupported(field + ": reaching files outside " + home + " and " + workspace + ", but by commands, is not served")
		}
		p = path.Clean("." + strings.TrimPrefix(p, root))
	}
	if p == ".." || strings.HasPrefix(p, "../") {
		return "", schemas.Invalidf(field, "leads out of the workspace")
	}
	return p, nil
}

// outside returns the absolute path for clients of a path relative to the workspace.
func outside(p string) string { return path.Join(workspace, p) }
