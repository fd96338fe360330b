package schemas

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// DecodeRequest reads a request strictly, as every way in must: it refuses unknown and
// repeated fields, invalid UTF-8, NUL, trailing data and more than [MaxRequest] bytes, and then
// validates what the caller is answerable for; what a model has done wrong is [Request.Misuse]. Errors are of code invalid and
// name the field and the remedy.
func DecodeRequest(b []byte) (Request, error) {
	var r Request
	if err := decodeStrict(b, bounds{MaxRequest, MaxMembers}, &r, "input"); err != nil { // which is read once it is known of which tool
		return Request{}, err
	}
	r, err := r.Parsed()
	if err != nil {
		return Request{}, err
	}
	return r, nil
}

// DecodeCall reads a call from the log. Unknown fields are skipped.
func DecodeCall(b []byte) (Call, error) {
	var c Call
	if err := json.Unmarshal(b, &c); err != nil {
		return Call{}, jsonError(err)
	}
	if err := c.Validate(); err != nil {
		return Call{}, err
	}
	return c, nil
}

// DecodeEvent reads an event from the log. Unknown fields and types are skipped. Account is
// empty when the source is not one of ours.
func DecodeEvent(b []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(b, &e); err != nil {
		return Event{}, jsonError(err)
	}
	if a, ok := strings.CutPrefix(e.Source, accountSource); ok && AccountID(a).Validate() == nil {
		e.Account = AccountID(a)
	}
	return e, nil
}

// Validate reports the first thing that is wrong with r, a [Request.Misuse] too. It does not look at the clock, so a
// deadline in the past is found at admission.
func (r Request) Validate() error {
	r, err := r.Parsed()
	if err != nil {
		return err
	}
	if misuse := r.Misuse(); misuse != nil {
		return misuse
	}
	return nil
}

// check validates what the caller is answerable for, and reads the input.
func (r Request) check() (*parsedInput, error) {
	if err := r.checkMembers(); err != nil {
		return nil, err
	}
	if err := r.checkShape(); err != nil {
		return nil, err
	}
	p, err := r.readInput()
	if err != nil {
		return nil, err
	}
	// Of a call that was meant for a group the job is ended too, so that the group need not wait for it.
	if b, ok := p.value.(BashInput); r.Group != nil && !b.Background && (ok || r.Tool != ToolBash) {
		return nil, Invalidf("group", "is for background calls: set input.background, or leave the group out")
	}
	return p, nil
}

// checkShape checks that there is a tool, and an object as its input.
func (r Request) checkShape() error {
	if r.Tool == "" {
		return Invalidf("tool", "is missing: use one of %s", toolNames())
	}
	if err := validateToken("tool", string(r.Tool), MaxToolName, "_.-"); err != nil {
		return err
	}
	input := bytes.TrimLeft(r.Input, " \t\r\n")
	switch {
	case len(input) == 0 || bytes.HasPrefix(input, []byte("null")):
		return Invalidf("input", "is missing: %s needs an object with its arguments", Quotable(string(r.Tool)))
	case input[0] != '{':
		return Invalidf("input", "must be an object with the arguments of %s", Quotable(string(r.Tool)))
	}
	return nil
}

// checkMembers checks the fields other than tool and input.
func (r Request) checkMembers() error {
	if r.ID != "" {
		if err := r.ID.Validate(); err != nil {
			return err
		}
	}
	if r.Conversation != "" {
		if err := r.Conversation.Validate(); err != nil {
			return err
		}
	}
	for _, v := range []interface {
		Validate() error
	}{optional[AccountID](r.Account), optional[AgentID](r.Agent), optional[TurnID](r.Turn)} {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	switch r.Dialect {
	case "", DialectClaude, DialectDeepAgents:
	default:
		return Invalidf("dialect", "%q is unknown: use claude or deepagents", Quotable(string(r.Dialect)))
	}
	for _, f := range []struct{ field, name string }{{"workspace", r.Workspace}, {"sandbox", r.Sandbox}} {
		if f.name != "" {
			if err := validateToken(f.field, f.name, MaxName, "_.- "); err != nil {
				return err
			}
		}
	}
	if t := time.Duration(r.Timeout); t < 0 || t > MaxTimeout {
		return Invalidf("timeout", "%s is out of range: at most %s; run longer work in the background", t, MaxTimeout)
	}
	if r.Origin != nil {
		if err := r.Origin.validate(); err != nil {
			return err
		}
	}
	if r.TraceParent != "" { // it becomes a header
		if err := validateToken("traceparent", r.TraceParent, MaxTraceParent, "-"); err != nil {
			return err
		}
	}
	if r.Group != nil {
		if err := r.Group.Validate(); err != nil {
			return err
		}
	}
	_, err := ParseArtifactPatterns("artifacts", r.Artifacts)
	return err
}

// Validate reports whether c has what every worker relies on. The input was checked at admission, and the worker that runs the call decodes
// it again, so it is not checked here.
func (c Call) Validate() error {
	if err := c.ID.Validate(); err != nil {
		return err
	}
	if err := c.Account.Validate(); err != nil {
		return err
	}
	if err := c.Conversation.Validate(); err != nil {
		return err
	}
	if c.Provider == "" || c.Deadline.IsZero() || c.Agent == "" && (c.Workspace == "" || c.Sandbox == "") {
		return Invalidf("call", "is not resolved: provider, workspace, sandbox and deadline must be set")
	}
	if why := Refusal(c.Tool, c.Workspace, c.Sandbox); why != "" && c.Unfit() == nil {
		return Invalidf("call", "is not resolved: %s", why)
	}
	if !slices.Contains(Tools(), c.Tool) && c.Misuse == nil || len(c.Input) == 0 || string(c.Input) == "null" {
		return Invalidf("tool", "%q is unknown or has no input", Quotable(string(c.Tool)))
	}
	return nil
}

func (o Origin) validate() error {
	switch o.Kind {
	case "api", "nats", "websocket", "channel", "async":
	default:
		return Invalidf("origin.kind", "%q is unknown: use api, nats, websocket, channel or async", Quotable(o.Kind))
	}
	if n := len(o.Channel) + len(o.Route); n > MaxOrigin {
		return Invalidf("origin", "is %d bytes long: the limit is %d", n, MaxOrigin)
	}
	if o.ChannelID != "" && o.ChannelID.Validate() != nil {
		return Invalidf("origin.channel_id", "%q is not the id of a chat channel", Quotable(string(o.ChannelID)))
	}
	if o.Channel != "" {
		return validateToken("origin.channel", o.Channel, MaxChannel, "_.-")
	}
	return nil
}

// DecodeInput reads and checks the input of a tool strictly. The value is a BashInput, ReadInput,
// WriteInput, EditInput, GlobInput, GrepInput, LSInput, LoadSkillInput or AsyncStatusInput, by tool.
func DecodeInput(t Tool, raw json.RawMessage) (any, error) { return toolInput(t, raw, true) }

// DecodeAcceptedInput reads the input of an accepted call, which [DecodeInput] has checked at admission, at a fifth of its cost. Its
// values have the same types.
func DecodeAcceptedInput(t Tool, raw json.RawMessage) (any, error) { return toolInput(t, raw, false) }

func toolInput(t Tool, raw json.RawMessage, strict bool) (any, error) {
	absent := len(raw) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
	if absent && slices.Contains(Tools(), t) { // of an unknown tool that is said first
		return nil, Invalidf("input", "is missing: %s needs an object with its arguments", Quotable(string(t)))
	}
	switch t {
	case ToolBash:
		return decodeInput[BashInput](raw, strict)
	case ToolRead:
		return decodeInput[ReadInput](raw, strict)
	case ToolWrite:
		return decodeInput[WriteInput](raw, strict)
	case ToolEdit:
		return decodeInput[EditInput](raw, strict)
	case ToolGlob:
		return decodeInput[GlobInput](raw, strict)
	case ToolGrep:
		return decodeInput[GrepInput](raw, strict)
	case ToolLS:
		return decodeInput[LSInput](raw, strict)
	case ToolLoadSkill:
		return decodeInput[LoadSkillInput](raw, strict)
	case ToolAsyncStatus:
		return decodeInput[AsyncStatusInput](raw, strict)
	}
	return nil, Invalidf("tool", "%q is unknown: use one of %s", Quotable(string(t)), toolNames())
}

func decodeInput[T interface{ validate() error }](raw json.RawMessage, strict bool) (any, error) {
	var in T
	var wrong Problems
	if strict {
		wrong = decodeAll(raw, bounds{MaxInput, MaxMembers}, &in)
	} else if err := json.Unmarshal(raw, &in); err != nil {
		wrong.Add("", jsonError(err))
	}
	if err := in.validate(); err != nil && !wrong.about(Public(err).Field) {
		wrong.Add("", err)
	}
	if len(wrong) > 0 {
		return nil, misfit(wrong, reflect.TypeFor[T]())
	}
	return in, nil
}

func (in LoadSkillInput) validate() error { return ValidateSkillName("name", in.Name) }

func (in BashInput) validate() error {
	if t := in.Timeout; t != nil && (*t < 1 || int64(*t) > MaxTimeout.Milliseconds()) {
		return Invalidf("timeout", "%d is out of range: give milliseconds from 1 to %d, or run longer work in the background",
			*t, MaxTimeout.Milliseconds())
	}
	return first(length("command", in.Command, 1, MaxCommand), length("description", in.Description, 0, MaxDescription))
}

func (in ReadInput) validate() error {
	if in.Base != nil && *in.Base != 0 && *in.Base != 1 {
		return Invalidf("base", "%d is neither 0 nor 1", *in.Base)
	}
	return first(length("file_path", in.FilePath, 1, MaxPath), notNegative("limit", in.Limit))
}

func (in WriteInput) validate() error {
	switch in.Mode {
	case "", WriteOverwrite, WriteCreate, WriteAppend:
	default:
		return Invalidf("mode", "%q is unknown: use overwrite, create or append", Quotable(string(in.Mode)))
	}
	return first(length("file_path", in.FilePath, 1, MaxPath), length("content", in.Content, 0, MaxContent),
		length("if_match", in.IfMatch, 0, 128))
}

func (in EditInput) validate() error {
	return first(length("file_path", in.FilePath, 1, MaxPath), length("old_string", in.OldString, 1, MaxContent),
		length("new_string", in.NewString, 0, MaxContent))
}

func (in GlobInput) validate() error {
	switch in.Sort {
	case "", SortNewest, SortName:
	default:
		return Invalidf("sort", "%q is unknown: use newest or name", Quotable(string(in.Sort)))
	}
	return first(length("pattern", in.Pattern, 1, MaxPattern), length("path", in.Path, 0, MaxPath))
}

func (in GrepInput) validate() error {
	switch in.OutputMode {
	case "", GrepFiles, GrepContent, GrepCount:
	default:
		return Invalidf("output_mode", "%q is unknown: use files_with_matches, content or count", Quotable(string(in.OutputMode)))
	}
	return first(length("pattern", in.Pattern, 1, MaxPattern), length("path", in.Path, 0, MaxPath), length("glob", in.Glob, 0, MaxPattern),
		notNegative("head_limit", in.HeadLimit))
}

func (in LSInput) validate() error {
	switch in.Missing {
	case "", MissingError, MissingEmpty:
	default:
		return Invalidf("missing", "%q is unknown: use error or empty", Quotable(string(in.Missing)))
	}
	if in.Limit != nil && *in.Limit < 1 {
		return Invalidf("limit", "%d is out of range: at least 1", *in.Limit)
	}
	return length("path", in.Path, 0, MaxPath)
}

func length(field, s string, low, high int) error {
	switch {
	case len(s) < low:
		return Invalidf(field, "is missing or empty")
	case len(s) > high:
		return Invalidf(field, "is %d bytes long: the limit is %d", len(s), high)
	case strings.IndexByte(s, 0) >= 0:
		return Invalidf(field, "has a NUL byte")
	}
	return nil
}

func notNegative(field string, n *int) error {
	if n != nil && *n < 0 {
		return Invalidf(field, "%d is negative: leave it out for the default", *n)
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// optional validates an id only when it is there.
type optional[T ~string] string

func (o optional[T]) Validate() error {
	if o == "" {
		return nil
	}
	if v, ok := any(T(o)).(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

func toolNames() string { return listed(Tools()) }

// oneOf reports whether a value is one of those allowed. Code: invalid.
func oneOf[T ~string](field string, value T, allowed []T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return Invalidf(field, "%q is unknown: use one of %s", Quotable(string(value)), listed(allowed))
}

// listed joins names for a sentence.
func listed[T ~string](names []T) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = string(n)
	}
	return strings.Join(all, ", ")
}
