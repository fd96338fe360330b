package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// argWorkspace is the argument of every tool by which a model chooses among the workspaces of its agent.
const argWorkspace = "workspace"

// Placed returns the request with the workspace that its input names, if it does, where others name it, and
// taken out of the input. The digest is that of the request as it was. Codes: invalid (the two differ).
func (r Request) Placed() (Request, error) {
	rest, name, err := r.placing()
	if err != nil {
		return r, err
	}
	return r.placedIn(rest, name)
}

func (r Request) placedIn(rest json.RawMessage, name string) (Request, error) {
	if name == "" {
		r.Input = rest
		return r, nil
	}
	if r.Workspace != "" && r.Workspace != name {
		return r, Invalidf("input."+argWorkspace, "%q is not the request's workspace, %q: name one of them", name, r.Workspace)
	}
	r.Workspace, r.Input = name, rest
	return r, nil
}

// placing is the input without the workspace that it names, and that.
func (r Request) placing() (rest json.RawMessage, name string, err error) {
	switch {
	case !r.parsed.of(r.Tool, r.Input):
		return takeWorkspace(r.Input)
	case same(r.Input, r.parsed.sent):
		return r.parsed.placed, r.parsed.workspace, nil
	}
	return r.Input, "", nil // it was taken out before
}

// takeWorkspace takes the argument out of an input. What is no object stays as it is: who decodes it says so.
func takeWorkspace(input json.RawMessage) (rest json.RawMessage, name string, err error) {
	// The usual call has no such argument, and is not read for it. One that is written with escapes is not
	// found here, and refused as unknown.
	if !bytes.Contains(input, []byte(`"`+argWorkspace+`"`)) || checkText(input, MaxInput) != nil {
		return input, "", nil //nolint:nilerr // as said above
	}
	dec := json.NewDecoder(bytes.NewReader(input))
	if opening, bad := dec.Token(); bad != nil || opening != json.Delim('{') {
		return input, "", nil //nolint:nilerr // as said above
	}
	out := []byte{'{'}
	found := false
	for dec.More() {
		key, bad := dec.Token()
		var value json.RawMessage
		if bad != nil || dec.Decode(&value) != nil {
			return input, "", nil //nolint:nilerr // as said above
		}
		if key != argWorkspace {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, mustJSON(key)...), ':'), value...)
			continue
		}
		if found {
			return input, "", Invalidf("input."+argWorkspace, "is given twice")
		}
		found = true
		if string(value) == "null" { // a model that must name every argument leaves it out so
			continue
		}
		if json.Unmarshal(value, &name) != nil || validateToken("", name, MaxName, "_.- ") != nil {
			return input, "", Invalidf("input."+argWorkspace, "must be the name of a workspace")
		}
	}
	if _, bad := dec.Token(); bad != nil { // the closing brace
		return input, "", nil //nolint:nilerr // as said above
	}
	if _, bad := dec.Token(); !errors.Is(bad, io.EOF) { // More says no before a brace too many
		return input, "", nil
	}
	if !found {
		return input, "", nil
	}
	return append(out, '}'), name, nil
}
