package archtest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedDocumentsUseStandardWords: what the API's documents say of routes, fields and channels, most of which are comments of the
// types in schemas.
func TestGeneratedDocumentsUseStandardWords(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, "schemas", "json", "*.json"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d schemas, %v", len(files), err)
	}
	files = append(files, filepath.Join(top, "gateway", "openapi.json"), filepath.Join(top, "schemas", "asyncapi.json"))
	n := 0
	for _, file := range files {
		name := strings.TrimPrefix(file, top+string(filepath.Separator))
		var document any
		if err := json.Unmarshal([]byte(read(t, name)), &document); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, text := range described(document) {
			n++
			if word, instead := wrongInError(text, false); word != "" {
				t.Errorf("%s: %q says %q: %s", name, text, word, instead)
			}
		}
	}
	if n < 500 {
		t.Errorf("only %d descriptions were found: the rule does not see them", n)
	}
}

// described has all descriptions, titles and summaries of a document.
func described(v any) (texts []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if text, ok := value.(string); ok && (key == "description" || key == "title" || key == "summary") {
				texts = append(texts, text)
			}
			texts = append(texts, described(value)...)
		}
	case []any:
		for _, value := range v {
			texts = append(texts, described(value)...)
		}
	}
	return texts
}
