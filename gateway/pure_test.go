package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway/mcpapi"
	"github.com/sandjet/sandjet/schemas"
)

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
			if _, says401 := op.Responses["401"]; says401 == (op.Security != nil && len(*op.Security) == 0) {
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

// TestRoutesAreNamedAlike holds the naming rules of routes.
func TestRoutesAreNamedAlike(t *testing.T) {
	g := New(Options{})
	served := map[string]bool{}
	for _, r := range g.routes() {
		served[r.method+" "+r.path] = true
		if slices.Contains([]string{"/healthz", "/readyz", "/metrics", "/openapi.json", mcpapi.Path, mcpapi.PathMetadata,
			mcpapi.PathMetadata + mcpapi.Path}, r.path) {
			continue
		}
		if strings.HasPrefix(r.path, "/v1/sandbox/") {
			continue // that API is another's, and kept as it is: docs/guides/sandbox-api.md
		}
		segments := strings.Split(r.path, "/")
		if len(segments) < 3 || segments[1] != "v1" {
			t.Errorf("%s is not below /v1", r.path)
			continue
		}
		for _, s := range segments[2:] {
			if !regexp.MustCompile(`^([a-z]+(-[a-z]+)*|\{[a-z]+(\.\.\.)?\})$`).MatchString(s) {
				t.Errorf("%s: %q is not in lower case with hyphens", r.path, s)
			}
		}
		if first := segments[2]; first != "ws" && !strings.HasSuffix(first, "s") {
			t.Errorf("%s: %s is not a plural", r.path, first)
		}
		last := segments[len(segments)-1]
		if r.method == http.MethodPost && len(segments) > 3 && strings.HasPrefix(last, "{") && last != "{path...}" {
			t.Errorf("POST %s: name the verb", r.path)
		}
	}
	for _, a := range g.aliases() {
		if !served[a.method+" "+a.of] || served[a.method+" "+a.path] {
			t.Errorf("%s %s is not another name of the route %s", a.method, a.path, a.of)
		}
	}
}

// TestOpenAPIDescribesTheTypes compares each schema's fields with those of the Go type.
func TestOpenAPIDescribesTheTypes(t *testing.T) {
	d := readDocument(t)
	for name, typ := range Components() {
		s := d.Components.Schemas[name]
		var fields, required []string
		for _, f := range reflect.VisibleFields(typ) {
			tag, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if tag == "-" || tag == "" || slices.Contains(HiddenFields(typ), tag) {
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
		"Code": codes, "JobState": names(schemas.JobStates()), "ApprovalState": names(schemas.ApprovalStates()),
		"EventType": names(schemas.DeliverableTypes()),
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
