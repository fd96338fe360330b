package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func request(project, resources, more string) string {
	return fmt.Sprintf(`{"manifest":{"version":1,"project":%q,"resources":[%s]}%s}`, project, resources, more)
}

const vaulted = `{"kind":"sandbox","name":"vaulted","config":{"envVars":{"A":"planted-1","B":"env:API"}}},` +
	`{"kind":"workspace","name":"docs","config":{"sandbox":"vaulted"}},` +
	`{"kind":"agent","name":"writer","config":{"workspaces":[{"workspace":"docs"}]}}`

func TestAManifestFromItsPlanToItsEnd(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	put := func(body string) (schemas.ManifestAnswer, answer) {
		t.Helper()
		a := k.as(k.anna, http.MethodPut, "/v1/accounts/me/manifest", body)
		if a.status != http.StatusOK || strings.Contains(a.body, "planted") {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return decode[schemas.ManifestAnswer](t, a), a
	}
	if dry, _ := put(request("p", vaulted, `,"dryRun":true`)); dry.Applied || len(dry.Changes) != 3 || len(dry.Warnings.MissingEnv) != 1 {
		t.Errorf("%+v", dry)
	}
	if missing := k.as(k.anna, http.MethodGet, "/v1/accounts/me/manifest?project=p", ""); missing.status != http.StatusNotFound {
		t.Errorf("a dry run left %d %s", missing.status, missing.body)
	}
	if done, _ := put(request("p", vaulted, "")); !done.Applied || !done.Differs() {
		t.Errorf("%+v", done)
	}
	if again, _ := put(request("p", vaulted, "")); again.Differs() {
		t.Errorf("%+v", again)
	}
	stands := k.as(k.anna, http.MethodGet, "/v1/accounts/me/manifest?project=p", "")
	if stands.status != http.StatusOK || !strings.Contains(stands.body, `"B":"env:API"`) || strings.Contains(stands.body, "planted") {
		t.Fatalf("%d %s", stands.status, stands.body)
	}
	if again, _ := put(`{"prune":true,"manifest":` + stands.body + `}`); again.Differs() {
		t.Errorf("what stands changes %+v", again)
	}
	// For the administrator it is the same, and for another account it is not there.
	admin := holder{key: adminKey}
	if same := k.as(admin, http.MethodGet, "/v1/accounts/"+k.anna.id+"/manifest?project=p", ""); same.body != stands.body {
		t.Errorf("%d %s", same.status, same.body)
	}
	for _, a := range []answer{
		k.as(k.bert, http.MethodGet, "/v1/accounts/me/manifest?project=p", ""),
		k.as(k.bert, http.MethodGet, "/v1/accounts/"+k.anna.id+"/manifest?project=p", ""),
		k.as(k.bert, http.MethodPut, "/v1/accounts/"+k.anna.id+"/manifest", request("p", "", `,"prune":true`)),
	} {
		if a.status != http.StatusNotFound || strings.Contains(a.body, "docs") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if gone, _ := put(request("p", "", `,"prune":true`)); len(gone.Changes) != 3 {
		t.Errorf("%+v", gone)
	}
}

func TestManifestsRefuse(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	for name, c := range map[string]struct {
		method, path, body, says string
		status                   int
	}{
		"no manifest": {http.MethodPut, "/v1/accounts/me/manifest", `{}`, "is missing", http.StatusBadRequest},
		"no object":   {http.MethodPut, "/v1/accounts/me/manifest", `[]`, "one JSON object", http.StatusBadRequest},
		"an unknown field": {http.MethodPut, "/v1/accounts/me/manifest", request("p", "", `,"prun":true`), `use \"prune\"`,
			http.StatusBadRequest},
		"all that is wrong": {
			http.MethodPut, "/v1/accounts/me/manifest",
			request("p", `{"kind":"sandbox","name":"a","config":{"timeout":9999}},{"kind":"workspace","name":"b","config":{"sandbox":"c"}}`, ""),
			"2 things are wrong", http.StatusBadRequest,
		},
		"no project":      {http.MethodGet, "/v1/accounts/me/manifest", "", "?project=", http.StatusBadRequest},
		"another query":   {http.MethodGet, "/v1/accounts/me/manifest?project=p&x=1", "", "x", http.StatusBadRequest},
		"a project of no": {http.MethodGet, "/v1/accounts/me/manifest?project=p", "", "no manifest has been applied", http.StatusNotFound},
		"too much": {http.MethodPut, "/v1/accounts/me/manifest", strings.Repeat(" ", schemas.MaxManifest+1), "make it two projects",
			http.StatusRequestEntityTooLarge},
	} {
		a := k.as(k.anna, c.method, c.path, c.body)
		if a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

//guarantee:a-manifest-is-applied-whole-in-the-end-and-nothing-of-it-twice
func TestVariablesAreSetAndNeverShown(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	const all, one = "/v1/accounts/me/variables", "/v1/accounts/me/variables/API"
	if none := k.as(k.anna, http.MethodGet, all, ""); none.body != `{"variables":[]}` {
		t.Errorf("%d %s", none.status, none.body)
	}
	for _, a := range []answer{
		k.as(k.anna, http.MethodPut, one, `{"value":"planted-1"}`),
		k.as(k.anna, http.MethodPut, one, `{"value":"planted-2"}`),
		k.as(k.anna, http.MethodGet, all, ""),
		k.as(holder{key: adminKey}, http.MethodGet, "/v1/accounts/"+k.anna.id+"/variables", ""),
	} {
		if a.status != http.StatusOK || !strings.Contains(a.body, `"name":"API"`) || strings.Contains(a.body, "planted") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for _, c := range []struct {
		who                holder
		method, path, body string
		status             int
	}{
		{k.anna, http.MethodPut, "/v1/accounts/me/variables/1A", `{"value":"planted"}`, http.StatusBadRequest},
		{k.anna, http.MethodPut, "/v1/accounts/me/variables/A.B", `{"value":"planted"}`, http.StatusBadRequest},
		{k.anna, http.MethodPut, one, `{"value":""}`, http.StatusBadRequest},
		{k.anna, http.MethodPut, one, `{"valeu":"planted"}`, http.StatusBadRequest},
		{k.anna, http.MethodPut, one, `{"value":{"planted":1}}`, http.StatusBadRequest},
		{k.anna, http.MethodPut, one, `{"value":"planted` + strings.Repeat("x", schemas.MaxVariable) + `"}`, http.StatusBadRequest},
		{k.bert, http.MethodPut, "/v1/accounts/" + k.anna.id + "/variables/API", `{"value":"planted"}`, http.StatusNotFound},
		{k.bert, http.MethodDelete, one, "", http.StatusNotFound},
		{k.bert, http.MethodDelete, "/v1/accounts/" + k.anna.id + "/variables/API", "", http.StatusNotFound},
		{k.anna, http.MethodDelete, one, "", http.StatusOK},
		{k.anna, http.MethodDelete, one, "", http.StatusNotFound},
		{k.anna, http.MethodDelete, "/v1/accounts/me/variables/1A", "", http.StatusNotFound},
	} {
		a := k.as(c.who, c.method, c.path, c.body)
		if a.status != c.status || strings.Contains(a.body, "planted") {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
	}
}

// TestARefusedManifestHasAListOfWhatIsWrong: beside the message for people there is one entry for each thing, with its field.
func TestARefusedManifestHasAListOfWhatIsWrong(t *testing.T) {
	t.Parallel()
	k := openKept(t)
	got := k.as(k.anna, http.MethodPut, "/v1/accounts/me/manifest", request("p",
		`{"kind":"sandbox","name":"s","config":{"timeout":99999,"permissionMode":"bypas","memry":1}},`+
			`{"kind":"workspace","name":"w","config":{"sandbox":"nosuch"}},{"kind":"agnt","name":"a"}`, ""))
	if got.status != http.StatusBadRequest {
		t.Fatalf("%d %s", got.status, got.body)
	}
	body := decode[struct {
		Error  schemas.Error   `json:"error"`
		Errors []schemas.Error `json:"errors"`
	}](t, got)
	fields := map[string]bool{}
	for _, e := range body.Errors {
		if e.Code != schemas.Invalid || !strings.Contains(body.Error.Message, e.Message) {
			t.Errorf("%+v", e)
		}
		fields[e.Field] = true
	}
	for _, want := range []string{
		"resources[0].config.memry", "resources[0].config.permissionMode", "resources[0].config.timeout", "resources[1].config.sandbox",
		"resources[2].kind",
	} {
		if !fields[want] || len(body.Errors) != 5 {
			t.Errorf("%s is not reported: %s", want, got.body)
		}
	}
	// One thing alone is the error itself.
	one := k.as(k.anna, http.MethodPut, "/v1/accounts/me/manifest", request("p", `{"kind":"sandbox","name":"s","config":{"timeout":99999}}`, ""))
	if one.status != http.StatusBadRequest || strings.Contains(one.body, `"errors"`) ||
		!strings.Contains(one.body, `"field":"resources[0].config.timeout"`) {
		t.Errorf("%d %s", one.status, one.body)
	}
}
