package schemas

import (
	"encoding/json"
	"testing"
)

func TestTheInputMayNameTheWorkspace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		workspace, input string // of the request
		want, rest       string
		field            string // of the refusal
	}{
		"no":                       {"", `{"command":"a"}`, "", `{"command":"a"}`, ""},
		"first":                    {"", `{"workspace":"w","command":"a"}`, "w", `{"command":"a"}`, ""},
		"last, with blanks":        {"", "{\"command\" : \"<a>\" ,\n \"workspace\" : \"my notes\" } ", "my notes", `{"command":"<a>"}`, ""},
		"alone":                    {"", `{"workspace":"w"}`, "w", `{}`, "input.command"},
		"and the request, alike":   {"w", `{"workspace":"w","command":"a"}`, "w", `{"command":"a"}`, ""},
		"and the request, another": {"v", `{"workspace":"w","command":"a"}`, "v", "", "input.workspace"},
		"the request alone":        {"w", `{"command":"workspace"}`, "w", `{"command":"workspace"}`, ""},
		"twice":                    {"", `{"workspace":"w","workspace":"w","command":"a"}`, "", "", "input.workspace"},
		"no name":                  {"", `{"workspace":"","command":"a"}`, "", "", "input.workspace"},
		"no text":                  {"", `{"workspace":1,"command":"a"}`, "", "", "input.workspace"},
		"null":                     {"", `{"workspace":null,"command":"a"}`, "", `{"command":"a"}`, ""},
		"null, and the request":    {"w", `{"command":"a","workspace":null}`, "w", `{"command":"a"}`, ""},
		"null and a name":          {"", `{"workspace":null,"workspace":"w","command":"a"}`, "", "", "input.workspace"},
		"not such a name":          {"", `{"workspace":"../w","command":"a"}`, "", "", "input.workspace"},
		"others are given twice":   {"", `{"workspace":"w","command":"a","command":"b"}`, "w", "", "input.command"},
		"others are unknown":       {"", `{"workspace":"w","comand":"a"}`, "w", "", "input.comand"},
		"half a surrogate":         {"", `{"workspace":"w","command":"\ud83d"}`, "", "", "input"},
		"more behind":              {"", `{"workspace":"w","command":"a"}x`, "", "", "input.workspace"},
		"a list":                   {"", `["workspace","w"]`, "", "", "input"},
		"ends early":               {"", `{"workspace":"w",`, "", "", "input.workspace"},
		"written with an escape":   {"", `{"\u0077orkspace":"w","command":"a"}`, "", "", "input.workspace"},
	} {
		r := Request{Tool: ToolBash, Input: json.RawMessage(tc.input), Workspace: tc.workspace}
		err := r.Validate()
		if field := Public(err).Field; err != nil && field != tc.field || (err == nil) != (tc.field == "") {
			t.Errorf("%s: %v, want %q", name, err, tc.field)
		}
		placed, err := r.Placed()
		if tc.rest != "" && (err != nil || placed.Workspace != tc.want || string(placed.Input) != tc.rest) {
			t.Errorf("%s: %q with %s, %v", name, placed.Workspace, placed.Input, err)
		}
		if string(r.Input) != tc.input {
			t.Errorf("%s: the request was changed", name)
		}
	}
}

// FuzzPlaced: what comes out is no more than what went in, and names nothing any more.
func FuzzPlaced(f *testing.F) {
	f.Add([]byte(`{"workspace":"w","command":"a"}`))
	f.Add([]byte(`{"a":{"workspace":"x"},"workspace":"w"}`))
	f.Add([]byte(`{"workspace":"w","a":"\""} `))
	f.Add([]byte(`{"workspace":null,"a":1}`))
	f.Add([]byte(`{"workspace":"0"}}`))
	f.Add([]byte(`["workspace","a"]`))
	f.Fuzz(func(t *testing.T, input []byte) {
		r, err := Request{Input: input}.Placed()
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		if r.Workspace == "" {
			if string(r.Input) == string(input) {
				return
			}
			var before map[string]any
			if err := json.Unmarshal(input, &before); err != nil {
				t.Fatalf("%s became %s: %v", input, r.Input, err)
			}
			if value, named := before["workspace"]; !named || value != nil {
				t.Errorf("%s became %s", input, r.Input)
			}
			return
		}
		var before, after map[string]any
		if json.Unmarshal(input, &before) != nil || json.Unmarshal(r.Input, &after) != nil || before["workspace"] != r.Workspace {
			t.Fatalf("%s became %q and %s", input, r.Workspace, r.Input)
		}
		delete(before, "workspace")
		if string(mustJSON(before)) != string(mustJSON(after)) {
			t.Errorf("%s became %s", input, r.Input)
		}
	})
}
