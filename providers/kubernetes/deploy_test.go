package kubernetes_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
)

// TestManifestsAreOfTheAPI reads the objects of deploy/kubernetes into the API's own types, and what they name of each other.
func TestManifestsAreOfTheAPI(t *testing.T) {
	files, err := os.ReadDir("../../deploy/kubernetes")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	made := map[string]map[string]any{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".yaml") {
			continue
		}
		for _, o := range objectsOf(t, f.Name()) {
			if err := kubetest.Misspelt(o); err != nil {
				t.Errorf("%s: %v", f.Name(), err)
			}
			flat := map[string]string{}
			flatten(flat, "", o)
			made[flat[".kind"]+" "+flat[".metadata.name"]] = o
		}
	}
	for name, o := range made {
		flat := map[string]string{}
		flatten(flat, "", o)
		if ns := flat[".metadata.namespace"]; ns != "" && made["Namespace "+ns] == nil {
			t.Errorf("%s is in the namespace %s, which no file makes", name, ns)
		}
		wanted := []string{flat[".roleRef.kind"] + " " + flat[".roleRef.name"]}
		if strings.HasSuffix(name, "Binding "+flat[".metadata.name"]) && flat[".spec.policyName"] != "" {
			wanted = []string{"ValidatingAdmissionPolicy " + flat[".spec.policyName"]}
		}
		subjects, _ := o["subjects"].([]any)
		for _, s := range subjects {
			of := map[string]string{}
			flatten(of, "", s)
			wanted = append(wanted, of[".kind"]+" "+of[".name"])
		}
		for _, w := range wanted {
			if w != " " && made[w] == nil {
				t.Errorf("%s names the %s, which no file makes", name, w)
			}
		}
	}
	if len(made) < 10 {
		t.Errorf("only %v", slices.Sorted(maps.Keys(made)))
	}
	for what, o := range map[string]map[string]any{
		"an unknown field": {"kind": "Pod", "spec": map[string]any{"hostUser": false}},
		"another type":     {"kind": "Pod", "spec": map[string]any{"hostUsers": "no"}},
		"an unknown kind":  {"kind": "Pot"},
	} {
		if kubetest.Misspelt(o) == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
