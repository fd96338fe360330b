package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func TestEveryCodeHasItsStatus(t *testing.T) {
	want := map[schemas.Code]int{
		schemas.Invalid: 400, schemas.NotFound: 404, schemas.Conflict: 409, schemas.Denied: 403, schemas.Exhausted: 429,
		schemas.Unavailable: 503, schemas.Timeout: 504, schemas.Unsupported: 501, schemas.Interrupted: 500, schemas.Internal: 500,
	}
	for _, c := range schemas.Codes() {
		if want[c] == 0 {
			t.Errorf("code %s is not in this test's table: decide its status", c)
		}
		if got := status(c); got != want[c] {
			t.Errorf("%s: %d, want %d", c, got, want[c])
		}
	}
	if got := status("of tomorrow"); got != http.StatusInternalServerError {
		t.Errorf("an unknown code: %d", got)
	}
}

func TestProblemsShowNoCause(t *testing.T) {
	secret := errors.New("dial tcp 10.1.2.3:4222: /var/lib/secret")
	for _, err := range []error{
		secret,
		schemas.Wrap(schemas.Unavailable, "publish", "the log is away", secret),
		withStatus(http.StatusTeapot, schemas.Wrap(schemas.Denied, "", "no", secret)),
	} {
		w := httptest.NewRecorder()
		w.Header().Set(headerRequestID, "req_1")
		writeProblem(w, err)
		var p problem
		if derr := json.Unmarshal(w.Body.Bytes(), &p); derr != nil || p.Error == nil || p.Error.Code == "" || p.Error.Message == "" {
			t.Errorf("%v: answered %s", err, w.Body)
		}
		if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "10.1.2.3") {
			t.Errorf("the cause is shown: %s", w.Body)
		}
	}
}

// What a route takes is named where something else is given, also when that is nothing.
func TestAnUnknownParameterIsToldWhatIsKnown(t *testing.T) {
	t.Parallel()
	for want, known := range map[string][]string{"use limit, wait": {"limit", "wait"}, "this route takes none": nil} {
		_, err := parseQuery("x=1", known...)
		if e, ok := errors.AsType[*schemas.Error](err); !ok || e.Field != "x" || !strings.HasSuffix(e.Message, want) {
			t.Errorf("%v: %v", known, err)
		}
	}
}

func TestWait(t *testing.T) {
	for raw, want := range map[string]time.Duration{
		"": 0, "wait=": 0, "wait=0": 0, "wait=1.5": 1500 * time.Millisecond, "wait=30s": 30 * time.Second,
		"wait=1h": time.Minute, "wait=1e300": time.Minute, "wait=Inf": time.Minute,
	} {
		q, err := parseQuery(raw, "wait")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.wait(time.Minute); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{"wait=-1", "wait=-1s", "wait=x", "wait=NaN", "wait=1&wait=2", "wiat=1", "wait=%zz", "wait=%ff"} {
		q, err := parseQuery(raw, "wait")
		if err == nil {
			_, err = q.wait(time.Minute)
		}
		if !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", raw, err)
		}
	}
}

func TestLastEventIDWinsOverAfter(t *testing.T) {
	q, err := parseQuery("after=now", "after")
	if err != nil {
		t.Fatal(err)
	}
	const cursor = "abc_00000000000000000007"
	for header, want := range map[string]string{"": "now", cursor: cursor} {
		got, err := q.after(http.Header{"Last-Event-Id": {header}})
		if err != nil || got.String() != want {
			t.Errorf("header %q: %s, %v; want %s", header, got, err, want)
		}
	}
}

func FuzzQuery(f *testing.F) {
	f.Add("wait=30s&limit=5&after=-1", "")
	f.Add("after=abc_00000000000000000007", "now")
	f.Add("wait=%ff&limit=99999999999999999999", "\xff")
	f.Fuzz(func(t *testing.T, raw, last string) {
		q, err := parseQuery(raw, "wait", "limit", "after")
		if err != nil {
			checkInvalid(t, err)
			return
		}
		if d, err := q.wait(time.Minute); err != nil {
			checkInvalid(t, err)
		} else if d < 0 || d > time.Minute {
			t.Fatalf("wait %s", d)
		}
		if n, err := q.limit(); err != nil {
			checkInvalid(t, err)
		} else if n < 1 || n > MaxPage {
			t.Fatalf("limit %d", n)
		}
		if _, err := q.after(http.Header{"Last-Event-Id": {last}}); err != nil {
			checkInvalid(t, err)
		}
	})
}

// checkInvalid wants an error that may be shown to the client as it is.
func checkInvalid(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok || e.Code != schemas.Invalid || e.Message == "" {
		t.Fatalf("%v: want an invalid error with a message", err)
	}
	if !utf8.ValidString(e.Message) || !utf8.ValidString(e.Field) || len(e.Error()) > 1024 {
		t.Fatalf("cannot be shown: %q", e.Error())
	}
}

func TestDecodeOp(t *testing.T) {
	for _, frame := range []string{
		`{"op":"attach","id":1,"conv":"c_1"}`, `{"op":"attach","conv":"c_1","after":"now"}`, `{"op":"detach","conv":"c_1"}`,
		`{"op":"send","id":2,"request":{}}`, `{"op":"cancel","call":"x","reason":"enough"}`, `{"op":"ping"}`,
	} {
		if _, malformed, err := decodeOp([]byte(frame)); err != nil || malformed {
			t.Errorf("%s: %v", frame, err)
		}
	}
	for frame, want := range map[string]string{
		`{"id":7}`:                                       "op",
		`{"op":"jump","id":7}`:                           "op",
		`{"op":"attach","id":7}`:                         "conv",
		`{"op":"attach","id":7,"conv":"a b"}`:            "conv",
		`{"op":"attach","id":7,"conv":"c","call":"x"}`:   "call",
		`{"op":"attach","id":7,"conv":"c","after":"x"}`:  "after",
		`{"op":"detach","id":7,"conv":"c","after":"-1"}`: "after",
		`{"op":"send","id":7}`:                           "request",
		`{"op":"cancel","id":7}`:                         "call",
		`{"op":"cancel","id":7,"call":"a/b"}`:            "call",
		`{"op":"ping","id":7,"conv":"c"}`:                "conv",
		`{"op":"ping","id":7,"extra":1}`:                 "extra",
		`{"op":3,"id":7}`:                                "op",
		`{"op":"ping","id":7,"conv":["c"]}`:              "conv",
	} {
		op, malformed, err := decodeOp([]byte(frame))
		e, ok := errors.AsType[*schemas.Error](err)
		if malformed || !ok || e.Field != want {
			t.Errorf("%s: %v (malformed %v), want an error about %s", frame, err, malformed, want)
			continue
		}
		if op.ID == nil || *op.ID != 7 {
			t.Errorf("%s: the answer would not carry the id", frame)
		}
	}
	for _, frame := range []string{``, `x`, `[]`, `"x"`, `null`, `{`, `{} {}`, "{\"op\":\"\xff\"}"} {
		if _, malformed, err := decodeOp([]byte(frame)); err == nil || !malformed {
			t.Errorf("%q: %v (malformed %v), want a malformed frame", frame, err, malformed)
		}
	}
}

func FuzzDecodeOp(f *testing.F) {
	for _, s := range []string{`{"op":"attach","id":1,"conv":"c_1","after":"-1"}`, `{"op":"send","request":{"tool":"bash"}}`, `{"op":`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		op, malformed, err := decodeOp(b)
		if err != nil {
			checkInvalid(t, err)
			return
		}
		if malformed || op.validate() != nil || len(b) > MaxFrame {
			t.Fatalf("accepted %q as %+v", b, op)
		}
		if op.Op == opAttach {
			if schemas.ConversationID(op.Conv).Validate() != nil {
				t.Fatalf("conversation %q", op.Conv)
			}
		}
	})
}

// document is what the tests look at in openapi.json.
type document struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string                     `json:"operationId"`
		Summary     string                     `json:"summary"`
		Responses   map[string]json.RawMessage `json:"responses"`
		Security    *[]json.RawMessage         `json:"security"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Required   []string                   `json:"required"`
			Enum       []string                   `json:"enum"`
		} `json:"schemas"`
		Parameters map[string]json.RawMessage `json:"parameters"`
		Responses  map[string]json.RawMessage `json:"responses"`
	} `json:"components"`
}

func readDocument(t *testing.T) document {
	t.Helper()
	w := httptest.NewRecorder()
	if err := (&Gateway{Options: Options{Version: `1.2 "x"`}}).getOpenAPI(w, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(w.Body.Bytes(), []byte(`"version": "1.2 \"x\""`)) {
		t.Error("the document does not name the version")
	}
	var d document
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("openapi %q", d.OpenAPI)
	}
	return d
}

// TestOpenAPIFitsGenerators: many of those that make clients of such documents know a list of types not at all.
func TestOpenAPIFitsGenerators(t *testing.T) {
	var all any
	if err := json.Unmarshal([]byte(openAPI), &all); err != nil {
		t.Fatal(err)
	}
	var look func(at string, v any)
	look = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if _, list := v["type"].([]any); list {
				t.Errorf("%s: a list of types; use oneOf", at)
			}
			for k, x := range v {
				look(at+"/"+k, x)
			}
		case []any:
			for _, x := range v {
				look(at, x)
			}
		}
	}
	look("", all)
}

func TestOpenAPIDescribesTheRoutes(t *testing.T) {
	d := readDocument(t)
	var got, want []string
	for path, methods := range d.Paths {
		for method, op := range methods {
			got = append(got, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || op.Summary == "" || len(op.Responses) == 0 {
				t.Errorf("%s %s: operation id, summary or responses are missing", method, path)
			}
			if _, says401 := op.Responses["401"]; says401 == (op.Security != nil) {
				t.Errorf("%s %s: either it is open or it may answer 401", method, path)
			}
		}
	}
	for _, r := range New(Options{}).routes() {
		want = append(want, r.method+" "+strings.ReplaceAll(r.path, "...}", "}"))
	}
	sort.Strings(got)
	sort.Strings(want)
	if !slices.Equal(got, want) {
		t.Errorf("described: %v\nserved:    %v", got, want)
	}
}

// TestOpenAPIDescribesTheTypes compares each schema's fields with those of the Go type.
func TestOpenAPIDescribesTheTypes(t *testing.T) {
	d := readDocument(t)
	for name, typ := range map[string]reflect.Type{
		"Request": reflect.TypeFor[schemas.Request](), "Origin": reflect.TypeFor[schemas.Origin](), "Error": reflect.TypeFor[schemas.Error](),
		"Result": reflect.TypeFor[schemas.Result](), "Output": reflect.TypeFor[schemas.Output](), "Isolation": reflect.TypeFor[schemas.Isolation](),
		"Artifact": reflect.TypeFor[schemas.Artifact](), "Event": reflect.TypeFor[schemas.Event](),
		"CallState": reflect.TypeFor[CallState](), "Page": reflect.TypeFor[Page](), "PageEvent": reflect.TypeFor[PageEvent](),
		"Snapshot": reflect.TypeFor[streams.Snapshot](), "SnapshotText": reflect.TypeFor[streams.SnapshotText](),
		"Problem": reflect.TypeFor[problem](), "Gap": reflect.TypeFor[streams.Gap](),
		"Job": reflect.TypeFor[schemas.Job](), "Completion": reflect.TypeFor[schemas.Completion](), "Group": reflect.TypeFor[schemas.GroupRef](),
		"CallList": reflect.TypeFor[CallList](), "CallSummary": reflect.TypeFor[schemas.CallSummary](),
		"ConversationList": reflect.TypeFor[ConversationList](), "ConversationSummary": reflect.TypeFor[schemas.ConversationSummary](),
		"JobList": reflect.TypeFor[JobList](), "LogPage": reflect.TypeFor[LogPage](),
		"JobCallback": reflect.TypeFor[schemas.JobCallback](), "JobCallbackBody": reflect.TypeFor[schemas.JobCallbackBody](),
		"JobEnd": reflect.TypeFor[jobEndAnswer](), "JobSettled": reflect.TypeFor[settledAnswer](),
		"AppendedEvent": reflect.TypeFor[schemas.AppendedEvent](), "Appended": reflect.TypeFor[Appended](),
		"Endpoint": reflect.TypeFor[schemas.Endpoint](), "EndpointSecret": reflect.TypeFor[schemas.EndpointSecret](),
		"WebhookList": reflect.TypeFor[WebhookList](), "WebhookRequest": reflect.TypeFor[webhookRequest](), "WebhookPatch": reflect.TypeFor[webhookPatch](),
		"Call": reflect.TypeFor[schemas.Call](), "Approval": reflect.TypeFor[schemas.Approval](), "ApprovalList": reflect.TypeFor[admission.ApprovalList](),
		"ApprovalAnswer": reflect.TypeFor[schemas.ApprovalAnswer](),
		"Account":        reflect.TypeFor[schemas.AccountDocument](), "AccountSpec": reflect.TypeFor[schemas.AccountSpec](),
		"AccountList": reflect.TypeFor[AccountList](), "NewAccount": reflect.TypeFor[NewAccount](), "NewSecret": reflect.TypeFor[NewSecret](),
		"NATSCredential": reflect.TypeFor[schemas.NATSCredential](), "NATSCredentialRequest": reflect.TypeFor[natsRequest](),
		"DeletedAccount": reflect.TypeFor[DeletedAccount](),
		"Deleted":        reflect.TypeFor[Deleted](), "RotateSecretRequest": reflect.TypeFor[rotateRequest](),
		"Sandbox": reflect.TypeFor[schemas.SandboxDocument](), "SandboxSpec": reflect.TypeFor[schemas.SandboxSpec](),
		"SandboxConfig": reflect.TypeFor[schemas.SandboxConfig](), "SandboxList": reflect.TypeFor[SandboxList](),
		"NetworkConfig": reflect.TypeFor[schemas.NetworkConfig](), "LifecycleConfig": reflect.TypeFor[schemas.LifecycleConfig](),
		"Workspace": reflect.TypeFor[schemas.WorkspaceDocument](), "WorkspaceSpec": reflect.TypeFor[schemas.WorkspaceSpec](),
		"WorkspaceConfig": reflect.TypeFor[schemas.WorkspaceConfig](), "WorkspaceList": reflect.TypeFor[WorkspaceList](),
		"StorageConfig": reflect.TypeFor[schemas.StorageConfig](),
		"Agent":         reflect.TypeFor[schemas.AgentDocument](), "AgentSpec": reflect.TypeFor[schemas.AgentSpec](), "AgentList": reflect.TypeFor[AgentList](),
		"AgentConfig": reflect.TypeFor[schemas.AgentConfig](), "AgentWorkspace": reflect.TypeFor[schemas.AgentWorkspace](),
		"ToolConfig": reflect.TypeFor[schemas.ToolConfig](),
		"Manifest":   reflect.TypeFor[schemas.Manifest](), "Resource": reflect.TypeFor[schemas.Resource](), "ManifestRequest": reflect.TypeFor[schemas.ManifestRequest](),
		"ManifestAnswer": reflect.TypeFor[schemas.ManifestAnswer](), "ManifestChange": reflect.TypeFor[schemas.ManifestChange](),
		"FieldChange": reflect.TypeFor[schemas.FieldChange](), "ManifestWarnings": reflect.TypeFor[schemas.ManifestWarnings](),
		"Variable": reflect.TypeFor[schemas.VariableDocument](), "VariableList": reflect.TypeFor[VariableList](), "VariableValue": reflect.TypeFor[VariableValue](),
		"RotateRequest": reflect.TypeFor[rotateRequest](), "ReplayRequest": reflect.TypeFor[replayRequest](),
	} {
		s := d.Components.Schemas[name]
		var fields, required []string
		for f := range typ.Fields() {
			tag, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if tag == "-" || tag == "" || name == "Job" && (tag == "token_hash" || tag == "places") { // no answer has them
				continue
			}
			fields = append(fields, tag)
			if !strings.Contains(opts, "omit") {
				required = append(required, tag)
			}
		}
		var described []string
		for p := range s.Properties {
			described = append(described, p)
		}
		sort.Strings(fields)
		sort.Strings(described)
		sort.Strings(required)
		sort.Strings(s.Required)
		if !slices.Equal(fields, described) {
			t.Errorf("%s has the fields %v, the document says %v", name, fields, described)
		}
		if !slices.Equal(required, s.Required) {
			t.Errorf("%s always has %v, the document says %v", name, required, s.Required)
		}
	}
	var codes []string
	for _, c := range schemas.Codes() {
		codes = append(codes, string(c))
	}
	for name, want := range map[string][]string{
		"Code": codes, "JobState": names(schemas.JobStates()), "ApprovalState": names(schemas.ApprovalStates()), "EventType": names(schemas.DeliverableTypes()),
	} {
		if got := d.Components.Schemas[name].Enum; !slices.Equal(got, want) {
			t.Errorf("%s: %v, the document says %v", name, want, got)
		}
	}
}

func names[T ~string](list []T) []string {
	var out []string
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

func TestOpenAPIReferencesResolve(t *testing.T) {
	d := readDocument(t)
	for _, m := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(openAPI, -1) {
		parts := strings.Split(m[1], "/") // #/components/<kind>/<name>
		ok := false
		if len(parts) == 4 && parts[0] == "#" && parts[1] == "components" {
			switch parts[2] {
			case "schemas":
				_, ok = d.Components.Schemas[parts[3]]
			case "parameters":
				_, ok = d.Components.Parameters[parts[3]]
			case "responses":
				_, ok = d.Components.Responses[parts[3]]
			}
		}
		if !ok {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
}
