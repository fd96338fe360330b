package schemas

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Every way in which a request can be wrong, the field that the answer names, and a word of the
// remedy.
//
//guarantee:bad-input-is-answered-not-guessed
func TestDecodeRequestRefuses(t *testing.T) {
	const ok = `"tool":"bash","input":{"command":"true"}`
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct{ body, field, says string }{
		"empty":                 {``, "", "ends too early"},
		"not an object":         {`[]`, "", "one JSON object"},
		"null":                  {`null`, "", "one JSON object"},
		"half":                  {`{"tool":"ba`, "", "ends too early"},
		"not JSON":              {`{tool:1}`, "", "not JSON"},
		"trailing":              {`{` + ok + `} {}`, "", "data after"},
		"invalid UTF-8":         {`{"tool":"` + "\xff" + `"}`, "", "base64"},
		"half a surrogate":      {`{"tool":"bash","input":{"command":"\ud83d"}}`, "", "surrogate"},
		"swapped surrogates":    {`{"tool":"bash","input":{"command":"\ude00\ud83d"}}`, "", "surrogate"},
		"timeout of 0 ms":       {`{"tool":"bash","input":{"command":"true","timeout":0}}`, "input.timeout", "milliseconds from 1 to 600000"},
		"bash timeout too long": {`{"tool":"bash","input":{"command":"true","timeout":600001}}`, "input.timeout", "in the background"},
		"not a dialect's field": {`{"tool":"bash","input":{"command":"true","timeout":1000},"dialect":"deepagents"}`,
			"input", "the call's timeout"},
		"no tool":                {`{"input":{"command":"true"}}`, "tool", "bash, read"},
		"unknown tool":           {`{"tool":"python","input":{}}`, "tool", "bash, read"},
		"tool in another case":   {`{"Tool":"bash","input":{"command":"true"}}`, "Tool", `use "tool"`},
		"tool of another type":   {`{"tool":1,"input":{}}`, "tool", "must be a string"},
		"tool twice":             {`{"tool":"bash","tool":"read","input":{}}`, "tool", "twice"},
		"unknown field":          {`{` + ok + `,"comand":1}`, "comand", "spelling"},
		"no input":               {`{"tool":"bash"}`, "input", "missing"},
		"null input":             {`{"tool":"bash","input":null}`, "input", "missing"},
		"input a string":         {`{"tool":"bash","input":"ls"}`, "input", "object"},
		"no command":             {`{"tool":"bash","input":{}}`, "input.command", "missing"},
		"command a number":       {`{"tool":"bash","input":{"command":1}}`, "input.command", "must be a string"},
		"command with NUL":       {`{"tool":"bash","input":{"command":"a\u0000b"}}`, "input.command", "NUL"},
		"command too long":       {`{"tool":"bash","input":{"command":"` + strings.Repeat("x", MaxCommand+1) + `"}}`, "input.command", "limit"},
		"unknown field in input": {`{"tool":"bash","input":{"command":"true","runInBackground":true}}`, "input.runInBackground", "spelling"},
		"camel case in input":    {`{"tool":"read","input":{"filePath":"a"}}`, "input.filePath", `use "file_path"`},
		"twice in input":         {`{"tool":"bash","input":{"command":"a","command":"b"}}`, "input.command", "twice"},
		"background not bool":    {`{"tool":"bash","input":{"command":"a","background":"yes"}}`, "input.background", "true or false"},
		"base 2":                 {`{"tool":"read","input":{"file_path":"a","base":2}}`, "input.base", "neither"},
		"offset a fraction":      {`{"tool":"read","input":{"file_path":"a","offset":1.5}}`, "input.offset", "whole number"},
		"negative limit":         {`{"tool":"read","input":{"file_path":"a","limit":-1}}`, "input.limit", "negative"},
		"path with NUL":          {`{"tool":"read","input":{"file_path":"a\u0000"}}`, "input.file_path", "NUL"},
		"path too long":          {`{"tool":"read","input":{"file_path":"` + strings.Repeat("x", MaxPath+1) + `"}}`, "input.file_path", "limit"},
		"write mode":             {`{"tool":"write","input":{"file_path":"a","content":"","mode":"w"}}`, "input.mode", "overwrite"},
		"empty old string":       {`{"tool":"edit","input":{"file_path":"a","old_string":"","new_string":"b"}}`, "input.old_string", "empty"},
		"ls limit":               {`{"tool":"ls","input":{"limit":0}}`, "input.limit", "at least 1"},
		"ls missing":             {`{"tool":"ls","input":{"missing":"never"}}`, "input.missing", "empty"},
		"glob sort":              {`{"tool":"glob","input":{"pattern":"*","sort":"size"}}`, "input.sort", "newest"},
		"grep mode":              {`{"tool":"grep","input":{"pattern":"a","output_mode":"json"}}`, "input.output_mode", "content"},
		"grep negative limit":    {`{"tool":"grep","input":{"pattern":"a","head_limit":-5}}`, "input.head_limit", "negative"},
		"id":                     {`{` + ok + `,"id":"a/b"}`, "id", "character outside"},
		"id too long":            {`{` + ok + `,"id":"` + long + `"}`, "id", "limit is 128"},
		"account":                {`{` + ok + `,"account":"acct_a.b"}`, "account", "not an id"},
		"agent":                  {`{` + ok + `,"agent":"a"}`, "agent", "agent_"},
		"turn":                   {`{` + ok + `,"turn":"t"}`, "turn", "turn_"},
		"conversation":           {`{` + ok + `,"conversation":"a b"}`, "conversation", "character outside"},
		"conversation too long":  {`{` + ok + `,"conversation":"` + long + `"}`, "conversation", "limit is 256"},
		"dialect":                {`{` + ok + `,"dialect":"openai"}`, "dialect", "claude or deepagents"},
		"workspace":              {`{` + ok + `,"workspace":"../x"}`, "workspace", "character outside"},
		"sandbox":                {`{` + ok + `,"sandbox":"a\nb"}`, "sandbox", "character outside"},
		"timeout negative":       {`{` + ok + `,"timeout":-1}`, "timeout", "duration"},
		"timeout too long":       {`{` + ok + `,"timeout":"11m"}`, "timeout", "at most 10m"},
		"timeout a word":         {`{` + ok + `,"timeout":"soon"}`, "timeout", "30s"},
		"deadline":               {`{` + ok + `,"deadline":"tomorrow"}`, "deadline", "RFC 3339"},
		"deadline a number":      {`{` + ok + `,"deadline":5}`, "deadline", "RFC 3339"},
		"origin kind":            {`{` + ok + `,"origin":{"kind":"fax"}}`, "origin.kind", "websocket"},
		"origin field":           {`{` + ok + `,"origin":{"kind":"api","chanel":"x"}}`, "origin.chanel", `use "channel"`},
		"origin channel":         {`{` + ok + `,"origin":{"kind":"channel","channel":"a\u0000"}}`, "origin.channel", "character outside"},
		"origin too large":       {`{` + ok + `,"origin":{"kind":"api","route":"` + strings.Repeat("x", MaxOrigin) + `"}}`, "origin", "limit"},
		"traceparent":            {`{` + ok + `,"traceparent":"00-ab\r\nX: y"}`, "traceparent", "character outside"},
		"too deep": {`{` + ok + `,"origin":{"kind":"api","route":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}}`,
			"origin.route", "nested deeper"},
		"too large": {`{"tool":"write","input":{"file_path":"a","content":"` + strings.Repeat("x", 10<<20) + `"}}`, "", "limit is 8388608"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := DecodeRequest([]byte(c.body))
			misuse := strings.HasPrefix(c.field, "input.") || name == "unknown tool" || name == "not a dialect's field"
			if misuse {
				if err != nil || r.Misuse() == nil || !errors.Is(r.Validate(), ErrInvalid) {
					t.Fatalf("got %v, %v: want a request with a misuse", err, r.Misuse())
				}
				if in, bad := r.TypedInput(); in != nil || bad == nil {
					t.Fatalf("an input that does not fit was read as %v", in)
				}
				err = r.Misuse()
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Code != Invalid {
				t.Fatalf("got %v, want an error of code invalid", err)
			}
			if e.Field != c.field && (name != "too deep" || !strings.HasPrefix(e.Field, c.field)) {
				t.Errorf("field %q, want %q", e.Field, c.field)
			}
			if !strings.Contains(e.Message, c.says) {
				t.Errorf("message %q does not say %q", e.Message, c.says)
			}
			if strings.Contains(e.Message, "schemas.") || len(e.Message) > 400 {
				t.Errorf("message is not for a user: %q", e.Message)
			}
			if !misuse && (r.Tool != "" || r.Input != nil) {
				t.Error("a refused request came back beside the error")
			}
		})
	}
}

// A model repairs all of its mistakes at once, if the error names all of them.
func TestAMisuseNamesEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 80) + strings.Repeat("]", 80)
	for name, c := range map[string]struct{ body, want string }{
		"another name": {`{"tool":"bash","input":{"cmd":"ls"}}`,
			"input.cmd: is not a known field: check its spelling; command is missing or empty. Known fields: command, background, timeout, description"},
		"one too many": {`{"tool":"read","input":{"file_path":"a","lines":3}}`,
			"input.lines: is not a known field: check its spelling. Known fields: file_path, offset, limit, base"},
		"of other types": {`{"tool":"read","input":{"file_path":1,"limit":"ten"}}`,
			"input.file_path: has the wrong type: it must be a string, not a JSON number; limit has the wrong type: it must be a whole number, " +
				"not a JSON string"},
		"no such tool": {`{"tool":"python","input":{"code":"1"}}`,
			`tool: "python" is unknown: use one of bash, read, write, edit, glob, grep, ls, load_skill, async_status`},
		"a workspace twice": {`{"tool":"bash","input":{"workspace":"a","workspace":"a","command":"ls"}}`, "input.workspace: is given twice"},
		"many":              {`{"tool":"bash","input":{"a1":1,"b2":1,"c3":1,"d4":1,"e5":1,"f6":1}}`, "and 2 more"},
	} {
		r, err := DecodeRequest([]byte(c.body))
		if err != nil || r.Misuse() == nil || !strings.Contains(r.Misuse().Error(), c.want) {
			t.Errorf("%s: %v, %v, want %s", name, err, r.Misuse(), c.want)
		}
	}
	for name, body := range map[string]string{ // that no log is to keep
		"deep":         `{"tool":"bash","input":{"command":"a","x":` + deep + `}}`,
		"deep, twice":  `{"tool":"bash","input":{"command":"a","command":"b","x":` + deep + `}}`,
		"many members": `{"tool":"python","input":{"x":[0` + strings.Repeat(",0", MaxMembers) + `]}}`,
		"many, twice":  `{"tool":"bash","input":{"command":"a","command":"b","x":[0` + strings.Repeat(",0", MaxMembers) + `]}}`,
		"large":        `{"tool":"python","input":{"x":"` + strings.Repeat("x", MaxInput) + `"}}`,
		"no name":      `{"tool":"a tool","input":{}}`,
		"a long name":  `{"tool":"` + strings.Repeat("x", MaxToolName+1) + `","input":{}}`,
	} {
		if r, err := DecodeRequest([]byte(body)); !errors.Is(err, ErrInvalid) || r.Tool != "" {
			t.Errorf("%s: it is taken: %v", name, err)
		}
	}
}

func TestDecodeRequestAccepts(t *testing.T) {
	for _, body := range []string{
		`{"tool":"bash","input":{"command":"echo 'ü 😀 \ud83d\ude00'"}}`,
		`{"tool":"bash","input":{"command":"true","timeout":120000,"description":"Do nothing"}}`,
		`{"tool":"bash","input":{"command":"true","timeout":null,"description":null,"background":null}}`,
		`{"tool":"read","input":{"file_path":"/a","offset":-1,"limit":0,"base":0},"dialect":"deepagents"}`,
		`{"tool":"write","input":{"file_path":"a","content":""},"id":"my.call:1-a_B"}`,
		`{"tool":"edit","input":{"file_path":"a","old_string":"a","new_string":"","allow_noop":true}}`,
		`{"tool":"glob","input":{"pattern":"**/*.go"},"timeout":1.5,"workspace":"my notes"}`,
		`{"tool":"grep","input":{"pattern":"a"},"timeout":"1m30s","conversation":"chat/1#x@y+z="}`,
		`{"tool":"bash","input":{"command":"true"},"timeout":null,"origin":{"kind":"channel","channel":"telegram","route":{"Chat":1,"chat":2}}}`,
		`{"tool":"bash","input":{"command":"true"},"deadline":"2026-11-21T12:00:00Z","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`,
	} {
		if _, err := DecodeRequest([]byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestCallFromTheLog(t *testing.T) {
	c := exampleCall()
	b := mustJSON(c)
	got, err := DecodeCall(append(b[:len(b)-1:len(b)-1], `,"later":{"field":1}}`...)) // written by a newer process
	if err != nil || got.ID != c.ID || !got.Deadline.Equal(c.Deadline) || got.Timeout != c.Timeout {
		t.Fatalf("%+v, %v", got, err)
	}
	for name, change := range map[string]func(*Call){
		"id":           func(c *Call) { c.ID = "" },
		"account":      func(c *Call) { c.Account = "acct_>" },
		"conversation": func(c *Call) { c.Conversation = "" },
		"provider":     func(c *Call) { c.Provider = "" },
		"workspace":    func(c *Call) { c.Workspace = "" },
		"sandbox":      func(c *Call) { c.Sandbox = "" },
		"deadline":     func(c *Call) { c.Deadline = time.Time{} },
		"tool":         func(c *Call) { c.Tool = "python" },
		"input":        func(c *Call) { c.Input = nil },
	} {
		bad := exampleCall()
		change(&bad)
		if _, err := DecodeCall(mustJSON(bad)); CodeOf(err) != Invalid {
			t.Errorf("without a proper %s: %v, want invalid", name, err)
		}
	}
}

//guarantee:tenants-are-isolated
func TestEventTakesItsAccountFromTheSource(t *testing.T) {
	e := NewEvent(exampleCall(), CallStarted, "id", time.Unix(0, 0), StartedData{})
	got, err := DecodeEvent(mustJSON(e))
	if err != nil || got.Account != "acct_1" {
		t.Fatalf("%q, %v", got.Account, err)
	}
	for _, source := range []string{"", "acct_1", "/accounts/", "/accounts/acct_1.>", "/other/acct_1"} {
		if got, err := DecodeEvent(fmt.Appendf(nil, `{"source":%q}`, source)); err != nil || got.Account != "" {
			t.Errorf("source %q gives account %q, %v", source, got.Account, err)
		}
	}
	if _, err := DecodeEvent([]byte(`{`)); CodeOf(err) != Invalid {
		t.Errorf("half an event: %v", err)
	}
}

//guarantee:the-same-id-is-the-same-call
func TestDigest(t *testing.T) {
	digest := func(body string) string {
		t.Helper()
		r, err := DecodeRequest([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return r.Digest()
	}
	const a = `{"tool":"read","input":{"file_path":"a","offset":9007199254740993}}`
	for same, body := range map[string]string{
		"spacing and order": `{ "input" : {"offset":9007199254740993, "file_path":"a"}, "tool":"read" }`,
		"id":                `{"tool":"read","input":{"file_path":"a","offset":9007199254740993},"id":"x"}`,
		"account":           `{"tool":"read","input":{"file_path":"a","offset":9007199254740993},"account":"acct_1"}`,
		"trace":             `{"tool":"read","input":{"file_path":"a","offset":9007199254740993},"traceparent":"00-1"}`,
	} {
		if digest(body) != digest(a) {
			t.Errorf("another %s made another call", same)
		}
	}
	for differs, body := range map[string]string{
		"the last digit of a large number": `{"tool":"read","input":{"file_path":"a","offset":9007199254740992}}`,
		"the path":                         `{"tool":"read","input":{"file_path":"b","offset":9007199254740993}}`,
		"the conversation":                 `{"tool":"read","input":{"file_path":"a","offset":9007199254740993},"conversation":"c"}`,
		"the timeout":                      `{"tool":"read","input":{"file_path":"a","offset":9007199254740993},"timeout":1}`,
	} {
		if digest(body) == digest(a) {
			t.Errorf("another call has the same digest: %s", differs)
		}
	}
	if (Request{Input: json.RawMessage(`{`)}).Digest() == (Request{Input: json.RawMessage(`}`)}).Digest() {
		t.Error("inputs that are no JSON have one digest")
	}
}

func TestInputNamesEveryTool(t *testing.T) {
	for _, tool := range Tools() {
		_, err := DecodeInput(tool, json.RawMessage(`{}`))
		if bare := tool == ToolLS; bare != (err == nil) || !bare && CodeOf(err) != Invalid { // ls lists the workspace itself
			t.Errorf("%s, an empty input: %v", tool, err)
		}
		if got := tool.SideEffects(); got != (tool == ToolBash || tool == ToolWrite || tool == ToolEdit) {
			t.Errorf("%s.SideEffects() = %v", tool, got)
		}
	}
	if !Tool("unheard_of").SideEffects() {
		t.Error("a tool that nobody knows must count as one with side effects")
	}
}

func exampleCall() Call {
	return Call{
		ID: "call_1", Account: "acct_1", Conversation: "c_1", Tool: ToolBash, Input: json.RawMessage(`{"command":"true"}`),
		Provider: "local", Workspace: "ws_1", Sandbox: "sb_1", Timeout: Duration(30 * time.Second),
		Accepted: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Deadline: time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC),
	}
}

// TestMembersAreBounded refuses documents whose many members, not whose bytes, would take long, wherever these are.
func TestMembersAreBounded(t *testing.T) { // what is allocated is measured for the whole process
	list := func(n int, one func(i int) string) string {
		all := make([]string, 0, n)
		for i := range n {
			all = append(all, one(i))
		}
		return strings.Join(all, ",")
	}
	member := func(i int) string { return fmt.Sprintf(`"k%d":0`, i) }
	object := func(int) string { return `{"a":1}` }
	type document struct {
		Raw  json.RawMessage   `json:"raw"`
		Map  map[string]int    `json:"map"`
		List []json.RawMessage `json:"list"`
	}
	for name, doc := range map[string]func(n int) string{
		"members":         func(n int) string { return `{"raw":{` + list(n-1, member) + `}}` },
		"members of maps": func(n int) string { return `{"map":{` + list(n-1, member) + `}}` },
		"elements":        func(n int) string { return `{"list":[` + list(n-1, func(int) string { return "0" }) + `]}` },
		"both":            func(n int) string { return `{"list":[` + list((n-1)/2, object) + `]}` },
	} {
		for n, refused := range map[int]bool{MaxMembers - 1: false, MaxMembers + 2: true, 400_000: true} {
			b := []byte(doc(n))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var d document
			err := DecodeStrict(b, MaxRequest, &d)
			runtime.ReadMemStats(&after)
			if (err != nil) != refused || refused && CodeOf(err) != Invalid {
				t.Errorf("%d %s: %v", n, name, err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 128<<20 { // other tests run beside it
				t.Errorf("%d %s: %d MiB were allocated", n, name, used>>20)
			}
		}
	}
	b := []byte(`{"raw":{` + list(10_000, member) + `}}`)
	var d document
	if allocs := testing.AllocsPerRun(1, func() { _ = DecodeStrict(b, MaxRequest, &d) }); allocs > 16*10_000 {
		t.Errorf("%g allocations for 10,000 members", allocs)
	}
}
